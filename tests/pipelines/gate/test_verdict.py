import random
from dataclasses import replace
from pathlib import Path

import pytest

from db.tables import Checkpoint, RunInputs
from evals.results import Item, Metric, Result
from pipelines.cli.train import _cycle_result
from pipelines.cycle import Cycle
from pipelines.gate.verdict import (
    Judgement,
    OtherResults,
    _behaviour_reason,
    _knowledge_reason,
    judge,
    require_pass_fail,
    settles_behaviour,
)
from pipelines.job import Job
from pipelines.outcome import Answer, Outcome
from pipelines.project.project import Project
from pipelines.settings.schema import Distill, Gate, Settings
from pipelines.training.training_run import RunResult
from recovery.errors import RecoverError
from recovery.lab import BASE
from tests.pipelines.project.checkpoints import record_checkpoint


def result(passes: list[bool], task: str = "ifeval", suite: str = "behaviour") -> Result:
    name = "prompt_level_strict_acc" if task == "ifeval" else "match"
    items = [Item(str(i), "", "", passed) for i, passed in enumerate(passes)]
    return Result(task, suite, "test", {name: Metric.from_passes(passes)}, items, {}, 0.0)


def random_passes(rng: random.Random, n: int, rate: float) -> list[bool]:
    return [rng.random() < rate for _ in range(n)]


def test_the_same_answers_pass_and_a_clear_loss_does_not() -> None:
    passes = [True] * 180 + [False] * 20
    assert judge(Gate(), result(passes), result(passes)).passed
    worse = judge(Gate(), result(passes), result([True] * 160 + [False] * 40))
    assert not worse.passed
    assert worse.reason.startswith(
        "instruction following is 0.100 below the clean model's on 200 items, and at most 0.148 below with 95 % "
        "confidence, but the gate allows only 0.030; knowledge was not measured"
    )
    assert worse.decision_text(promoted=False) == "rejected"
    assert worse.decision_text(promoted=True) == "promoted"  # a person may decide against the gate


def test_too_few_items_are_inconclusive_and_the_reason_says_how_many_are_enough() -> None:
    verdict = judge(Gate(), result([True] * 20), result([True] * 20))
    assert (verdict.passed, verdict.outcome) == (False, "inconclusive")
    assert verdict.behaviour.needed is not None
    assert verdict.behaviour.needed > 20
    assert "instruction following is equal to the clean model's on 20 items" in verdict.reason
    assert f"too few items to tell (about {verdict.behaviour.needed} would be enough)" in verdict.reason
    assert verdict.decision_text(promoted=False) == "inconclusive, so not promoted"


def test_a_loss_at_the_margin_is_not_to_be_decided_with_more_items() -> None:
    before = result([True] * 500 + [False] * 500)
    verdict = judge(Gate(), before, result([True] * 471 + [False] * 529))  # 0.029 below, where 0.030 is allowed
    assert (verdict.outcome, verdict.behaviour.needed) == ("inconclusive", None)
    assert "but the gate allows only 0.030: too close to the limit to tell;" in verdict.reason


def test_a_limit_is_named_only_where_it_reaches_as_many_items() -> None:
    few = result([True] * 20)
    asked: list[tuple[str, int]] = []

    def can_measure(suite: str, items: int) -> bool:
        asked.append((suite, items))
        return suite == "behaviour"

    before = [replace(few, suite="retention", task="general")]
    verdict = judge(Gate(), few, few, OtherResults(retention=(before, before)), can_measure=can_measure)
    assert verdict.retention is not None
    assert asked == [("behaviour", verdict.behaviour.needed), ("retention", verdict.retention.needed)]
    assert (verdict.behaviour.can_ask_more, verdict.retention.can_ask_more) == (True, False)
    assert f"(about {verdict.behaviour.needed} would be enough: --limit {verdict.behaviour.needed})" in verdict.reason
    assert f"(about {verdict.retention.needed} would be enough)" in verdict.reason


def asked_in_blocks(passes: list[bool], of: int) -> Result:
    return replace(result(passes), settings={"block": 200, "of": of})


def test_a_clear_verdict_says_after_how_many_prompts_it_stopped() -> None:
    clean = result([True] * 2000)
    verdict = judge(Gate(), clean, asked_in_blocks([True] * 398 + [False] * 2, 2000))
    assert (verdict.outcome, verdict.behaviour.n, verdict.behaviour.of) == ("passed", 400, 2000)
    assert verdict.behaviour.differ == pytest.approx(2 / 400)
    assert "0.005 below the clean model's after 400 of 2,000 prompts, and at most" in verdict.reason
    once = judge(Gate(), clean, result([True] * 398 + [False] * 2))
    assert once.behaviour.bound > verdict.behaviour.bound  # a bound for all looks is wider
    whole_error = judge(Gate(samples=0), clean, result([True] * 398 + [False] * 2))
    assert whole_error.behaviour.bound > once.behaviour.bound  # nothing of it is left for further replies
    failed = judge(Gate(), clean, asked_in_blocks([False] * 200, 2000))
    assert (failed.outcome, failed.behaviour.n) == ("failed", 200)


def test_a_cycle_stops_where_the_gate_decides() -> None:
    clean = [result([True] * 2000)]
    worse = result([i % 20 > 0 for i in range(2000)]).items
    looks = {n: settles_behaviour(Gate(), clean, worse[:n]) for n in range(200, 2001, 200)}
    stopped = min((n for n, clear in looks.items() if clear), default=2000)
    whole = judge(Gate(), clean[0], asked_in_blocks([item.passed for item in worse], 2000))
    assert (whole.behaviour.n, whole.outcome) == (stopped, "failed")
    assert stopped < 2000


def test_the_other_measures_may_decide_alone() -> None:
    """A verdict with one of them failed stays a failure, and says that more prompts would not change it."""
    same, known = (
        result([True] * 2000),
        OtherResults(replace(result([True] * 90 + [False] * 10), suite="knowledge"), 1.0),
    )
    assert known.fails(Gate())
    assert not OtherResults(known.knowledge, 0.9).fails(Gate())
    few = result([True] * 20 + [False])  # what it knew before is not decided
    assert not OtherResults(retention=([replace(few, suite="retention")], [replace(few, suite="retention")])).fails(
        Gate()
    )
    verdict = judge(Gate(), same, asked_in_blocks([True] * 193 + [False] * 7, 2000), known)
    assert (verdict.outcome, verdict.behaviour.unsure) == ("failed", True)
    assert "allows only 0.030: not settled, but further prompts could not change the verdict" in verdict.reason


def answered_by_another(rng: random.Random, passes: list[bool], lost: float, gained: float) -> list[bool]:
    """The same items, where another model fails a share `lost` of those passed and passes `gained` of the rest."""
    return [rng.random() >= lost if passed else rng.random() < gained for passed in passes]


def outcomes(lost: float, gained: float, n: int = 541, rate: float = 0.85, pairs: int = 200) -> dict[str, int]:
    rng = random.Random(0)
    counted = {"passed": 0, "inconclusive": 0, "failed": 0}
    for _ in range(pairs):
        clean = random_passes(rng, n, rate)
        counted[judge(Gate(), result(clean), result(answered_by_another(rng, clean, lost, gained))).outcome] += 1
    return counted


def test_an_equally_good_model_fails_in_at_most_one_case_in_twenty() -> None:
    """One item in ten is answered differently, with as many gained as lost."""
    assert outcomes(lost=0.05 / 0.85, gained=0.05 / 0.15)["failed"] <= 10


def test_a_model_six_points_worse_is_promoted_in_at_most_one_case_in_twenty() -> None:
    assert outcomes(lost=0.08 / 0.85, gained=0.02 / 0.15)["passed"] <= 10
    assert outcomes(lost=0.06 / 0.85, gained=0.0)["passed"] <= 10


def test_the_knowledge_of_each_earlier_cycle_has_its_own_limit() -> None:
    same = result([True] * 200)
    knowledge = {n: result([True] * n + [False] * (100 - n), f"cycle:{n}", "earlier") for n in (90, 70)}
    retained = judge(Gate(), same, same, OtherResults(earlier={1: (knowledge[90], 0.94)}))
    assert retained.passed
    assert retained.earlier[1].limit == pytest.approx(0.893)
    lost = judge(Gate(), same, same, OtherResults(earlier={1: (knowledge[90], 0.94), 2: (knowledge[70], 0.9)}))
    assert (lost.passed, lost.outcome) == (False, "failed")
    assert "knowledge of cycle 2 is 0.700, but the gate requires 0.855" in lost.reason
    assert lost.as_dict()["earlier"]["2"]["passed"] is False


def test_knowledge_must_be_retained_and_the_reason_says_when_it_was_not_measured() -> None:
    same = result([True] * 200)
    knowledge = result([True] * 90 + [False] * 10, "closed_book", "knowledge")
    assert judge(Gate(), same, same, OtherResults(knowledge, 0.9)).passed
    lost = judge(Gate(), same, same, OtherResults(knowledge, 0.96))
    assert not lost.passed
    assert lost.knowledge is not None
    assert lost.knowledge.limit == pytest.approx(0.912)
    assert "knowledge was not measured, so it was not judged" in judge(Gate(), same, same).reason


@pytest.mark.parametrize(
    ("clean", "best", "learned"),
    [(0.0, 0.0, False), (0.1, 0.1, False), (0.2, 0.1, False), (0.0, 0.1, True), (None, 0.0, None)],
)
def test_the_verdict_says_whether_the_documents_taught_anything_measurable(
    clean: float | None, best: float, learned: bool | None
) -> None:
    same = result([True] * 200)
    knowledge = result([i < 100 * best for i in range(100)], "closed_book", "knowledge")
    verdict = judge(Gate(), same, same, OtherResults(knowledge, best, clean_knowledge=clean))
    assert verdict.passed
    assert verdict.as_dict()["learned"] is verdict.learned is learned
    assert f"knowledge of the documents is {best:.3f} (the gate requires {0.95 * best:.3f})" in verdict.reason
    note = "the documents taught nothing measurable: the clean model knows at least as much of them"
    assert (note in verdict.reason) is (learned is False)


def test_a_reason_near_a_limit_shows_on_which_side_of_it_the_value_is() -> None:
    behaviour = Judgement(False, -0.01, -0.0302, -0.03, 500)
    assert "at most 0.0302 below with 95 % confidence, but the gate allows only 0.0300" in _behaviour_reason(behaviour)
    strict = Judgement(False, 0.0, -0.0003, -0.0, 9000)
    assert "at most 0.0003 below with 95 % confidence, but the gate allows only 0.0000" in _behaviour_reason(strict)
    passed = Judgement(True, 0.0, -0.0298, -0.03, 500)
    assert "at most 0.030 below with 95 % confidence (the gate allows 0.030)" in _behaviour_reason(passed)
    assert "and not below with" in _behaviour_reason(Judgement(True, 0.02, 0.0003, -0.03, 500))
    knowledge = Judgement(False, 0.9258, 0.9258, 0.9262, 500)
    assert _knowledge_reason("x", knowledge) == "knowledge of x is 0.9258, but the gate requires 0.9262"
    assert "is 0.92598, but the gate requires 0.92602" in _knowledge_reason(
        "x", Judgement(False, 0.92598, 0, 0.92602, 1)
    )


@pytest.mark.parametrize(("answer", "shown"), [(None, "inconclusive"), (False, "rejected"), (True, "promoted")])
def test_a_decision_by_a_person_is_not_shown_as_inconclusive(answer: bool | None, shown: str, tmp_path: Path) -> None:
    project = Project.open(tmp_path)
    cycle, number = project.tracker.open_cycle(project.id)
    record_checkpoint(project, cycle, 1)
    verdict = judge(Gate(), result([True] * 20), result([True] * 20))
    decide = None if answer is None else lambda _: Answer(answer, "read them all")
    for _ in range(2):  # the second time as after an interruption
        job = Cycle(project, Job("distill", Settings()), cycle, number)
        _, decision = job._decide(project.resolve("cycle:1"), verdict, decide)
        assert decision.startswith(shown)
    assert project.reader.cycles(project.id)[0].outcome == shown
    (promotion,) = project.reader.promotions(project.id)
    assert promotion.why == (verdict.reason if answer is None else "read them all")


@pytest.mark.parametrize(("promoted", "exit_code"), [(True, 0), (False, 3)])
def test_the_exit_code_does_not_depend_on_the_text_of_the_decision(promoted: bool, exit_code: int) -> None:
    same = [result([True] * 20)]
    run = RunResult(Checkpoint(id=1, cycle=1, run_id=1, role="recovered", path="run-0001", step=8), 1, 8)
    outcome = Outcome(1, same, same, same, judge(Gate(), same[0], same[0]), promoted, run, "any text")
    shown = _cycle_result(outcome)
    assert shown.exit_code == exit_code
    assert shown.data["promoted"] is promoted


def graded(grades: list[float], task: str = "squad_completion") -> Result:
    """A result by F1 or BLEU, where hardly any item is exactly right."""
    items = [Item(str(i), "", "", grade == 1) for i, grade in enumerate(grades)]
    return Result(task, "behaviour", "test", {"f1": Metric.from_values(grades)}, items, {}, 0.0)


def test_a_graded_task_is_rejected_for_behaviour() -> None:
    """No item passes on either side, so even a ruined model would have lost nothing."""
    clean, ruined = graded([0.8] * 300), graded([0.0] * 300)
    with pytest.raises(RecoverError, match="The items of squad_completion are graded"):
        judge(Gate(), clean, ruined)
    with pytest.raises(RecoverError, match="Name a task whose items pass or fail"):
        require_pass_fail(clean)
    with pytest.raises(RecoverError, match="are graded"):
        judge(Gate(), result([True] * 300), graded([0.9] * 300))
    require_pass_fail(result([True, False]))
    same = result([True] * 200)
    assert judge(Gate(), same, same, OtherResults(graded([0.9] * 100, "f1"), 0.9)).passed  # knowledge may be graded


def test_a_graded_task_is_rejected_as_soon_as_the_clean_model_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str | None] = []

    def measure(*_: object, inputs: RunInputs, **options: object) -> list[Result]:
        stages.append(inputs.stage)
        return [graded([0.8] * 4)]

    monkeypatch.setattr("pipelines.cycle.measure_checkpoint", measure)
    project = Project.open(tmp_path, str(BASE))
    job = Job("distill", Settings(distill=Distill(probe_every=0)))
    with pytest.raises(RecoverError, match="are graded"):
        Cycle(project, job).recover(project.clean)
    assert stages == ["measure/clean"]


def sampled(rng: random.Random, n: int, rate: float, count: int) -> list[Result]:
    return [result(random_passes(rng, n, rate), f"sample:{i}", "samples") for i in range(count)]


def test_further_replies_decide_where_greedy_ones_do_not() -> None:
    rng = random.Random(0)
    clean = result([True] * 411 + [False] * 22)
    recovered = result([False] * 26 + [True] * 405 + [False] * 2)  # 26 lost, 20 gained
    greedy = judge(Gate(), clean, recovered)
    assert greedy.outcome == "inconclusive"
    assert greedy.may_change_with_samples
    unlearned = result([True] * 9 + [False], "x", "knowledge")
    assert not judge(Gate(), clean, recovered, OtherResults(unlearned, 1.0)).may_change_with_samples
    samples = list(zip(sampled(rng, 433, 0.95, 4), sampled(rng, 433, 0.95, 4), strict=True))
    verdict = judge(Gate(), clean, recovered, samples=samples)
    assert (verdict.outcome, verdict.passed, verdict.may_change_with_samples) == ("passed", True, False)
    assert 1 <= verdict.behaviour.samples <= 4
    assert verdict.behaviour.differ == greedy.behaviour.differ
    assert "on 433 items with the greedy and " in verdict.reason
    worse = list(zip(sampled(rng, 433, 0.95, 4), sampled(rng, 433, 0.80, 4), strict=True))
    assert judge(Gate(), clean, recovered, samples=worse).outcome == "failed"
    clear = judge(Gate(), clean, clean, samples=worse)
    assert (clear.outcome, clear.behaviour.samples) == ("passed", 0)  # greedy replies come first


def test_the_time_for_a_point_is_by_the_prompts_that_both_models_were_asked() -> None:
    before, after = result([True] * 10 + [False] * 10), result([True] * 15 + [False] * 25)
    run = RunResult(Checkpoint(id=1, cycle=1, run_id=1, role="recovered", path="run-0001", step=8), 1, 8, seconds=50.0)
    verdict = judge(Gate(), after, after)
    cost = Outcome(1, [after], [before], [after], verdict, False, run, "any text").as_json()["cost"]
    assert cost == {"seconds": 50, "seconds_per_point": 2.0}  # 5 of 20 prompts came back
    assert Outcome(1, [], [], [], verdict, False, run, "").as_json()["cost"]["seconds_per_point"] is None
