from dataclasses import replace
from pathlib import Path

import pytest

from db.next_attempt import Attempt, advise
from db.tables import RunInputs
from db.verdict_lines import measure_lines
from evals.results import Result
from evals.suites.suite_measurement import of_file
from pipelines.cycle import Answer, Cycle
from pipelines.evaluation.checkpoint_measurement import knowledge_result, store_results
from pipelines.evaluation.printed_tables import verdict_table
from pipelines.gate.verdict import (
    OtherResults,
    behaviour_changes,
    judge,
    judge_knowledge,
    judge_retention,
    require_pass_fail,
    settles_behaviour,
)
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.project.runs import PastCycle
from pipelines.settings.schema import Distill, Gate, Settings
from recovery.errors import RecoverError
from tests.evals.fakes import graded, result
from tests.pipelines.project.checkpoints import promoted_cycle, record_checkpoint


def knew(passes: list[bool], task: str) -> Result:
    return result(passes, task, "retention")


def passing(passed: int, n: int = 300) -> list[bool]:
    return [i < passed for i in range(n)]


def test_the_same_answers_pass_and_a_clear_loss_does_not() -> None:
    passes = [True] * 180 + [False] * 20
    same = judge(Gate(), result(passes), result(passes))
    assert same.passed
    assert same.headline(same.decision_text(promoted=True)) == "Promoted."
    assert same.headline(same.decision_text(promoted=False)) == "Not promoted."
    worse = judge(Gate(), result(passes), result([True] * 160 + [False] * 40))
    assert not worse.passed
    assert worse.reason == "instruction following is short of its limit"
    assert worse.headline(worse.decision_text(promoted=False)) == f"Not promoted: {worse.reason}."
    assert worse.decision_text(promoted=True) == "promoted, against the gate"
    following, knowledge, retention = measure_lines(worse.as_dict())
    assert following[2:8] == (False, "missed", "0.900", "0.800", "0.758", "0.870")
    assert (knowledge.word, retention.word) == ("not judged", "not judged")


def test_the_reason_names_all_that_is_short_and_none_that_is_open() -> None:
    few, none = result([True] * 20), result([False] * 100, "closed_book", "knowledge")
    others = OtherResults(none, 0.9, {1: (replace(none, suite="earlier"), 0.9)})
    assert (
        judge(Gate(), few, few, others).reason
        == "new knowledge and knowledge of earlier cycles are short of their limits"
    )


def test_too_few_items_are_inconclusive_and_the_reason_says_how_many_are_enough() -> None:
    verdict = judge(Gate(), result([True] * 20), result([True] * 20))
    assert (verdict.passed, verdict.outcome) == (False, "inconclusive")
    assert verdict.behaviour.needed > 20
    assert (verdict.behaviour.limit, verdict.behaviour.setting) == (-0.03, "gate.behaviour_margin")
    assert verdict.headline("not promoted") == "Not promoted: instruction following is not decided."
    would_decide = f"about {verdict.behaviour.needed} prompts would decide it (20 were used)"
    assert measure_lines(verdict.as_dict())[0].details == ("20 prompts", would_decide)


@pytest.mark.parametrize("followed", [0, 8, 16])
def test_a_clean_model_that_follows_no_more_than_it_may_lose_decides_nothing(followed: int) -> None:
    """Its replies may have been cut in the middle of their thinking; a ruined model would do as well."""
    clean = result([i % 34 == 0 and i < 34 * followed for i in range(541)])
    verdict = judge(Gate(), clean, result([False] * 541))
    assert (verdict.passed, verdict.outcome, verdict.behaviour.needed) == (False, "inconclusive", None)
    assert "no loss could be seen" in measure_lines(verdict.as_dict())[0].details[1]
    assert advise(verdict.as_dict(), Attempt({"distill": {"recipe": "opd", "steps": 40}}, 40, 40)) is None
    few = replace(result([False] * 200), settings={"block": 100, "of": 541})
    assert settles_behaviour(Gate(block=100), [clean], few.items), "all prompts would tell as little"
    shown = measure_lines(judge(Gate(), clean, few).as_dict())[0].details
    assert (shown[0], len(shown)) == ("200 of 541 prompts", 3 if followed else 2)
    assert judge(Gate(behaviour_margin=0.99), clean, clean).passed, "the limit is switched off"
    assert judge(Gate(), result([i < 17 for i in range(541)]), result([False] * 541)).outcome != "passed"


def test_more_is_asked_where_the_clean_model_follows_too_little_of_the_first_prompts() -> None:
    clean = result([i >= 200 for i in range(541)])
    assert not settles_behaviour(Gate(block=100), [clean], clean.items[:200])
    assert settles_behaviour(Gate(block=100), [clean], clean.items[:300])


def test_a_loss_at_the_margin_is_not_to_be_decided_with_more_items() -> None:
    before = result([True] * 500 + [False] * 500)
    verdict = judge(Gate(), before, result([True] * 471 + [False] * 529))  # 0.029 below, where 0.030 is allowed
    assert (verdict.outcome, verdict.behaviour.needed) == ("inconclusive", None)
    assert "too close to the limit to be decided by more of them" in measure_lines(verdict.as_dict())[0].details
    few = result([True] * 50 + [False] * 50), result([True] * 44 + [False] * 56)  # 0.06 below
    beyond = measure_lines(judge(Gate(), *few).as_dict())[0]
    assert (beyond.word, beyond.details[1]) == ("not decided", "more of them would probably show that it is missed")


def test_a_limit_is_named_only_where_it_reaches_as_many_items() -> None:
    few, before_prompts = result([True] * 20), result([True] * 400)
    before = [replace(few, suite="retention", task="general")]
    others = OtherResults(retention=(before, before))
    verdict = judge(Gate(), few, few, others, limit_for=lambda suite, items, n: items if suite == "behaviour" else None)
    assert (verdict.behaviour.needed_limit, verdict.retention.needed_limit) == (verdict.behaviour.needed, None)
    following, _, retention = (" ".join(line.details) for line in measure_lines(verdict.as_dict()))
    assert f"about {verdict.behaviour.needed} prompts would decide it (20 were used): --limit " in following
    assert f"about {verdict.retention.needed} items would decide it (20 were used)" in retention
    assert "--limit" not in retention
    of_retention = judge(Gate(), before_prompts, before_prompts, others, limit_for=lambda suite, items, n: items)
    assert 20 < of_retention.retention.needed < 400
    assert of_retention.retention.needed_limit == 400, "a lower one would ask fewer prompts"


def asked_in_blocks(passes: list[bool], of: int) -> Result:
    return replace(result(passes), settings={"block": 200, "of": of})


def test_a_clear_verdict_says_after_how_many_prompts_it_stopped() -> None:
    clean = result([True] * 2000)
    verdict = judge(Gate(), clean, asked_in_blocks([True] * 398 + [False] * 2, 2000))
    assert (verdict.outcome, verdict.behaviour.n, verdict.behaviour.of) == ("passed", 400, 2000)
    assert verdict.behaviour.differ == pytest.approx(2 / 400)
    assert measure_lines(verdict.as_dict())[0].details[0] == "400 of 2,000 prompts, which decided"
    once = judge(Gate(), clean, result([True] * 398 + [False] * 2))
    assert once.behaviour.bound > verdict.behaviour.bound  # a bound for all looks is wider
    failed = judge(Gate(), clean, asked_in_blocks([False] * 200, 2000))
    assert (failed.outcome, failed.behaviour.n) == ("failed", 200)


def test_what_the_clean_model_follows_is_said_of_the_prompts_that_decided() -> None:
    clean = result([True] * 180 + [False] * 20 + [index % 2 == 0 for index in range(1800)])
    asked = asked_in_blocks([item.passed for item in clean.items[:1000]], 2000)  # for a smaller margin
    judgement = judge(Gate(block=200, behaviour_margin=0.05), clean, asked).behaviour
    assert (judgement.n, judgement.before) == (200, 0.9)


def test_a_cycle_stops_where_the_gate_decides() -> None:
    clean = [result([True] * 2000)]
    worse = result([i % 20 > 0 for i in range(2000)]).items
    looks = {n: settles_behaviour(Gate(), clean, worse[:n]) for n in range(200, 2001, 200)}
    stopped = min((n for n, clear in looks.items() if clear), default=2000)
    whole = judge(Gate(), clean[0], asked_in_blocks([item.passed for item in worse], 2000))
    assert (whole.behaviour.n, whole.outcome) == (stopped, "failed")
    assert stopped < 2000


def test_prompts_that_were_asked_in_other_blocks_are_judged_by_the_blocks_that_decide_whether_they_are_enough() -> None:
    clean, asked = result([True] * 2000), asked_in_blocks([i >= 23 for i in range(400)], 2000)
    for block, outcome in ((200, "failed"), (400, "inconclusive")):  # most are lost in the first 200
        assert judge(Gate(block=block), clean, asked).outcome == outcome
        assert settles_behaviour(Gate(block=block), [clean], asked.items) == (outcome == "failed")


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
    following = measure_lines(verdict.as_dict())[0]
    assert following.word == "not decided"
    assert following.details[0] == "200 of 2,000 prompts, asked no further, as another limit was missed"
    assert verdict.reason == "new knowledge is short of its limit"


def test_the_knowledge_of_each_earlier_cycle_has_its_own_limit() -> None:
    same = result([True] * 200)
    knowledge = {n: result([True] * n + [False] * (100 - n), f"cycle:{n}", "earlier") for n in (90, 70)}
    retained = judge(Gate(), same, same, OtherResults(earlier={1: (knowledge[90], 0.94)}))
    assert retained.passed
    assert retained.earlier[1].limit == pytest.approx(0.893)
    lost = judge(Gate(), same, same, OtherResults(earlier={1: (knowledge[90], 0.94), 2: (knowledge[70], 0.9)}))
    assert (lost.passed, lost.outcome) == (False, "failed")
    assert measure_lines(lost.as_dict())[2].details[0] == "cycle 1: 0.940 → 0.900, limit 0.893, met"
    assert lost.as_dict()["earlier"]["2"]["passed"] is False


@pytest.mark.parametrize(
    ("clean", "best", "now", "learned"),
    [
        (0.0, 0.0, 0.0, False),
        (0.1, 0.1, 0.1, False),
        (0.2, 0.1, 0.1, False),
        (0.0, 0.1, 0.1, True),
        (0.0, 0.0, 0.55, True),  # a move taught it beyond a fine-tune that knew nothing
        (None, 0.0, 0.0, None),
    ],
)
def test_the_verdict_says_whether_anything_was_learned(
    clean: float | None, best: float, now: float, learned: bool | None
) -> None:
    same, knowledge = result([True] * 200), result(passing(round(100 * now), 100), "closed_book", "knowledge")
    verdict = judge(Gate(), same, same, OtherResults(knowledge, best, clean_knowledge=clean))
    assert verdict.passed
    assert verdict.as_dict()["learned"] is verdict.learned is learned
    line = measure_lines(verdict.as_dict())[1]
    shown = "" if clean is None else f"{clean:.3f}"
    assert line[2:8] == (True, "met", shown, f"{now:.3f}", "", f"{0.95 * best:.3f}")
    note = "the documents taught nothing measurable: the clean model knows at least as much of them"
    assert (note in line.details) is (learned is False)


@pytest.mark.parametrize(("answer", "shown"), [(None, "inconclusive"), (False, "rejected"), (True, "promoted")])
def test_a_decision_by_a_person_is_not_shown_as_inconclusive(answer: bool | None, shown: str, project: Project) -> None:
    cycle, number = project.tracker.open_cycle(project.id)
    record_checkpoint(project, cycle, 1)
    verdict = judge(Gate(), result([True] * 20), result([True] * 20))
    given = None if answer is None else Answer(answer, "read them all")
    for _ in range(2):  # the second time as after an interruption
        job = Cycle(project, Job("distill", Settings()), cycle, number, given)
        _, decision = job._decide(project.resolve("cycle:1"), verdict)
        assert decision == ("promoted, against the gate" if answer else "not promoted")
    assert project.reader.cycles(project.id)[0].outcome == shown
    (promotion,) = project.reader.promotions(project.id)
    assert promotion.why == (verdict.reason if answer is None else "read them all")


def test_a_graded_task_is_rejected_for_behaviour() -> None:
    """No item passes on either side, so even a ruined model would have lost nothing."""
    clean, ruined = graded([0.8] * 300), graded([0.0] * 300)
    with pytest.raises(RecoverError, match="The items of squad are graded"):
        judge(Gate(), clean, ruined)
    with pytest.raises(RecoverError, match="Name one whose items pass or fail"):
        require_pass_fail(clean)
    with pytest.raises(RecoverError, match="are graded"):
        judge(Gate(), result([True] * 300), graded([0.9] * 300))
    require_pass_fail(result([True, False]))
    same = result([True] * 200)
    knowledge = graded([0.9] * 300, suite="knowledge")
    assert judge(Gate(), same, same, OtherResults(knowledge, 0.9)).passed, "knowledge may be graded"


def test_a_task_of_which_less_is_better_is_rejected_for_behaviour() -> None:
    """A worse model has more of it: each error would count as a pass."""
    toxic = replace(result([True] * 300, "toxicity"), settings={"lower_is_better": True})
    with pytest.raises(RecoverError, match="toxicity measures match, which is better the lower it is, so the gate"):
        judge(Gate(), toxic, toxic)


def test_a_task_of_which_less_is_better_is_left_out_of_what_was_known_and_of_knowledge() -> None:
    toxic = replace(result([True] * 300, "toxicity"), settings={"lower_is_better": True})
    known = result([True] * 300, "general", "retention")
    tasks = [replace(toxic, suite="retention"), known]
    retained = judge_retention(Gate(), tasks, tasks)
    assert (retained.n, retained.graded) == (300, ("toxicity",))
    right = replace(known, suite="knowledge")
    assert knowledge_result([replace(toxic, suite="knowledge")]) is None
    assert knowledge_result([replace(toxic, suite="knowledge"), right]) is right


@pytest.mark.parametrize(("task", "data"), [("ifeval", "lab-natural"), ("house", "test")])
def test_other_prompts_than_the_clean_model_s_are_rejected(task: str, data: str) -> None:
    """They may have the same keys."""
    clean = replace(result([True] * 300), data="lab")
    with pytest.raises(RecoverError, match=rf"asked ifeval \(lab\), and this one {task} \({data}\)"):
        judge(Gate(), clean, replace(clean, task=task, data=data))
    renamed = replace(clean, data="a.jsonl"), replace(clean, data="b.jsonl")
    assert judge(Gate(), *renamed).passed, "a file of the same content may have another name"


def test_a_graded_task_is_rejected_at_the_first_measurement(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str | None] = []

    def measure(*_: object, inputs: RunInputs, **options: object) -> list[Result]:
        stages.append(inputs.stage)
        return [graded([0.8] * 300)]

    monkeypatch.setattr("pipelines.cycle.measure_checkpoint", measure)
    job = Job("distill", Settings(distill=Distill(probe_every=0)))
    with pytest.raises(RecoverError, match="are graded"):
        Cycle(project, job).recover(project.clean)
    assert stages == ["measure/clean"]


def test_knowledge_of_an_earlier_cycle_is_compared_on_questions_asked_both_times(project: Project) -> None:
    """Its verdict left out the fifth that probes had used, by chance the hardest ones."""
    asked_then, asked_now = [True] * 60 + [False] * 20, [True] * 60 + [False] * 40
    record_checkpoint(project, project.tracker.open_cycle(project.id)[0], 1)
    checkpoint = project.resolve("cycle:1")
    store_results(project, checkpoint, None, "key", [result(asked_then, "closed_book", "knowledge")])
    (stored,) = project.reader.evaluations(checkpoint.id)
    past = PastCycle(1, checkpoint.id, "corpus", None, 0.75, stored.id)
    now, then = Cycle(project, Job("distill", Settings()))._now_and_then(result(asked_now, "cycle:1", "earlier"), past)
    assert (now.headline.value, now.headline.n, then) == (0.75, 80, 0.75)
    assert judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(earlier={1: (now, then)})).passed


def test_what_an_earlier_cycle_knew_is_not_judged_by_other_questions(project: Project, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answer": "Ada"}')
    promoted = promoted_cycle(project, tmp_path / "q.jsonl")
    now = result([False] * 60, "cycle:1", "earlier")
    cycle = Cycle(project, Job("cycle", Settings(), start=promoted.id))
    foreign = result([True] * 60, "closed_book", "knowledge")
    store_results(project, promoted, None, "key", [foreign])
    assert cycle._others([], [now], [now]).earlier == {}
    store_results(project, promoted, None, "own", of_file(tmp_path / "q.jsonl", [foreign]))
    assert cycle._others([], [now], [now]).earlier == {1: (now, 1.0)}


CLEAN = [knew([True] * 300, "arithmetic"), knew([True] * 300, "own_world")]
FOLLOWED = result([True] * 400)


def test_a_model_that_lost_a_third_of_a_task_is_rejected_and_the_reason_names_the_task() -> None:
    recovered = [knew([True] * 300, "arithmetic"), knew(passing(194), "own_world")]
    verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=(CLEAN, recovered)))
    assert (verdict.passed, verdict.outcome) == (False, "failed")
    assert verdict.retention.value == pytest.approx(-106 / 600)
    assert verdict.retention.limit == pytest.approx(-0.05)
    assert verdict.retention.tasks == {
        "arithmetic": {"n": 300, "lost": 0, "gained": 0},
        "own_world": {"n": 300, "lost": 106, "gained": 0},
    }
    assert verdict.reason == "what it knew before is short of its limit"
    assert verdict_table(verdict.as_dict()) == [
        "                         clean   now       with 95 %    limit",
        "instruction following    1.000 → 1.000       ≥ 0.993    0.970  met",
        "new knowledge          not judged",
        "what it knew before      1.000 → 0.823       ≥ 0.796    0.950  missed",
        "instruction following:",
        "  400 prompts",
        "new knowledge:",
        "  there are no questions on the documents (--questions)",
        "what it knew before:",
        "  600 items",
        "  own_world: 106 lost, none gained",
    ]


def test_the_verdict_says_what_the_distillation_did_to_what_the_model_knew_before() -> None:
    damaged = [*CLEAN[:1], knew(passing(240), "own_world"), result(passing(90), "own_world")]
    recovered = [*CLEAN[:1], knew(passing(180), "own_world")]
    others = OtherResults(retention=(CLEAN, recovered), damaged_retention=damaged)
    assert judge(Gate(), FOLLOWED, FOLLOWED, others).retention.came_back == pytest.approx(-60 / 600)
    assert judge(Gate(), FOLLOWED, FOLLOWED, replace(others, damaged_retention=())).retention.came_back is None


@pytest.mark.parametrize(("passed", "is_enough"), [(19, True), (18, False)])
def test_knowledge_that_is_exactly_at_its_limit_is_enough(passed: int, is_enough: bool) -> None:
    answers = result(passing(passed, 53), "closed_book", "knowledge")
    assert judge_knowledge(answers, 0.95, 20 / 53, "gate.keep_knowledge").passed is is_enough


def test_too_few_items_are_inconclusive_unless_something_else_failed() -> None:
    few = [knew([True] * 10, "arithmetic")]
    verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=(few, few)))
    assert (verdict.passed, verdict.outcome) == (False, "inconclusive")
    assert verdict.retention.needed > 10
    assert verdict.reason == "what it knew before is not decided"
    worse = result(passing(300, 400))
    assert judge(Gate(), FOLLOWED, worse, OtherResults(retention=(few, few))).outcome == "failed"


def test_items_of_two_tasks_with_the_same_keys_are_different_items() -> None:
    swapped = [knew([False] * 300, "arithmetic"), knew([True] * 300, "own_world")]
    judgement = judge_retention(Gate(), CLEAN, swapped)
    assert (judgement.n, judgement.value) == (600, -0.5)


def test_graded_tasks_are_left_out_and_the_reason_says_so() -> None:
    squad = graded([0.6] * 300, suite="retention")
    verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=([*CLEAN, squad], [*CLEAN, squad])))
    assert verdict.passed
    assert (verdict.retention.n, verdict.retention.graded) == (600, ("squad",))
    assert "left out, as their items have grades: squad" in measure_lines(verdict.as_dict())[-1].details
    for recovered in ([squad], []):  # nothing that passes or fails, or no measurement at all
        verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=([squad, *CLEAN], recovered)))
        assert (verdict.passed, verdict.as_dict()["retention"]) == (True, None)


def test_the_limit_is_a_share_of_what_the_clean_model_knew() -> None:
    clean, nothing_left = [knew(passing(200, 400), "general")], [knew([False] * 400, "general")]
    assert judge_retention(Gate(keep_retention=0.9), clean, clean).limit == pytest.approx(-0.05)
    assert judge_retention(Gate(keep_retention=0.0), clean, nothing_left).passed
    assert judge_retention(Gate(), nothing_left, nothing_left).passed, "nothing was known"


KINDS = ("length_constraints:number_words", "punctuation:no_comma")


def of_kinds(passes: list[bool]) -> Result:
    plain = result(passes)
    items = [
        replace(item, verdicts={"instructions": [KINDS[i % 3 > 0]], "strict": [item.passed]})
        for i, item in enumerate(plain.items)
    ]
    return replace(plain, items=items)


def test_it_says_what_came_back_what_flipped_and_of_which_kind() -> None:
    clean = of_kinds([True] * 90 + [False] * 10)
    damaged = of_kinds([False] * 30 + [True] * 60 + [False] * 10)
    recovered = of_kinds([False] * 6 + [True] * 84 + [True, *[False] * 9])
    lines = (
        "of 90 prompts that the clean model followed, 30 were lost before; 24 of these are regained",
        "7 of 100 verdicts differ from the clean model's: "
        "6 lost, most often punctuation (4) and length_constraints (2); 1 gained",
    )
    verdict = judge(Gate(), clean, recovered, damaged=damaged)
    assert measure_lines(verdict.as_dict())[0].details[-2:] == lines
    assert verdict.behaviour.came_back == pytest.approx(0.25)
    assert judge(Gate(), clean, damaged, damaged=recovered).behaviour.came_back == pytest.approx(-0.25)
    assert judge(Gate(), clean, recovered).behaviour.came_back is None
    assert behaviour_changes(clean, None, clean) == behaviour_changes(clean, clean, clean) == ()


def ending(share: float, n: int = 200) -> Result:
    """All follow their instructions, and this share of the replies ends."""
    measured = result([True] * n)
    items = [replace(item, verdicts={"finished": i < share * n}) for i, item in enumerate(measured.items)]
    return replace(measured, items=items)


def test_a_model_whose_replies_no_longer_end_is_named_though_it_follows_its_instructions() -> None:
    verdict = judge(Gate(), ending(0.5), ending(0.25))
    assert verdict.passed
    assert verdict.changes == ("fewer replies end within the limit of tokens: 50 of 200, of the clean model's 100",)
    assert judge(Gate(), ending(0.5), ending(0.49)).changes == (), "which may be chance"
    assert judge(Gate(), ending(0.5), ending(0.8)).changes == ()


@pytest.mark.parametrize(
    ("recovered", "regained"),
    [
        ([True] * 4 + [False] * 3 + [True] * 13, "4 of these are regained, 2 others lost"),  # by the last step
        ([True] * 10, "5 of these are regained"),
    ],
)
def test_what_came_back_is_counted_on_prompts_that_all_three_were_asked(recovered: list[bool], regained: str) -> None:
    line, *_ = behaviour_changes(result([True] * 100), result([False] * 5 + [True] * 15), result(recovered))
    expected = f"of {len(recovered)} prompts that the clean model followed, 5 were lost before; {regained}"
    assert line == expected
