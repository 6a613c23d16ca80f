import random
from pathlib import Path

import pytest

from evals.results import Item, Metric, Result
from pipelines.cycle import Cycle
from pipelines.evaluation.measure import EvalPlan
from pipelines.gate import judge, must_pass_or_fail
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings import Gate
from recovery.errors import RecoverError
from recovery.lab import BASE


def result(passes: list[bool], task: str = "ifeval", suite: str = "behaviour") -> Result:
    name = "prompt_level_strict_acc" if task == "ifeval" else "match"
    items = [Item(str(i), "", "", passed) for i, passed in enumerate(passes)]
    return Result(task, suite, "test", {name: Metric.from_passes(passes)}, items, {}, 0.0)


def drawn(rng: random.Random, n: int, rate: float) -> list[bool]:
    return [rng.random() < rate for _ in range(n)]


def test_the_same_answers_pass_and_a_clear_loss_does_not() -> None:
    passes = [True] * 180 + [False] * 20
    assert judge(Gate(), result(passes), result(passes), None, None).passed
    worse = judge(Gate(), result(passes), result([True] * 160 + [False] * 40), None, None)
    assert not worse.passed
    assert "short of the limit" in worse.reason
    assert worse.put(promoted=False) == "rejected"
    assert worse.put(promoted=True) == "promoted"  # a person may


def test_too_few_items_never_pass_for_want_of_certainty_and_it_says_how_many_would_do() -> None:
    verdict = judge(Gate(), result([True] * 20), result([True] * 20), None, None)
    assert (verdict.passed, verdict.outcome) == (False, "inconclusive")
    assert verdict.behaviour.needed is not None
    assert verdict.behaviour.needed > 20
    assert f"about {verdict.behaviour.needed} would do" in verdict.reason
    assert verdict.put(promoted=False) == "inconclusive, so not promoted"


def drawn_again(rng: random.Random, passes: list[bool], lost: float, gained: float) -> list[bool]:
    """The same items answered by a model that fails so many of those passed, and passes so many of those failed."""
    return [rng.random() >= lost if passed else rng.random() < gained for passed in passes]


def outcomes(lost: float, gained: float, n: int = 541, rate: float = 0.85, pairs: int = 200) -> dict[str, int]:
    rng = random.Random(0)
    counted = {"passed": 0, "inconclusive": 0, "failed": 0}
    for _ in range(pairs):
        clean = drawn(rng, n, rate)
        counted[judge(Gate(), result(clean), result(drawn_again(rng, clean, lost, gained)), None, None).outcome] += 1
    return counted


def test_a_model_as_good_is_failed_in_at_most_one_case_in_twenty() -> None:
    """Another model, as good: one item in ten is answered otherwise, as many won as lost."""
    assert outcomes(lost=0.05 / 0.85, gained=0.05 / 0.15)["failed"] <= 10


def test_a_model_six_points_worse_is_promoted_in_at_most_one_case_in_twenty() -> None:
    assert outcomes(lost=0.08 / 0.85, gained=0.02 / 0.15)["passed"] <= 10
    assert outcomes(lost=0.06 / 0.85, gained=0.0)["passed"] <= 10


def test_what_earlier_cycles_taught_is_guarded_each_by_its_own_limit() -> None:
    same = result([True] * 200)
    known = {n: result([True] * n + [False] * (100 - n), f"cycle:{n}", "earlier") for n in (90, 70)}
    kept = judge(Gate(), same, same, None, None, {1: (known[90], 0.94)})
    assert kept.passed
    assert kept.earlier[1].limit == pytest.approx(0.893)
    lost = judge(Gate(), same, same, None, None, {1: (known[90], 0.94), 2: (known[70], 0.9)})
    assert (lost.passed, lost.outcome) == (False, "failed")
    assert "knowledge of cycle 2 0.700, below the limit 0.855 by 0.155" in lost.reason
    assert lost.as_dict()["earlier"]["2"]["passed"] is False


def test_knowledge_must_be_kept_and_what_was_not_measured_is_said() -> None:
    same = result([True] * 200)
    known = result([True] * 90 + [False] * 10, "closed_book", "knowledge")
    assert judge(Gate(), same, same, known, 0.9).passed
    lost = judge(Gate(), same, same, known, 0.96)
    assert not lost.passed
    assert lost.knowledge is not None
    assert lost.knowledge.limit == pytest.approx(0.912)
    assert "only behaviour was judged" in judge(Gate(), same, same, None, None).reason


def graded(grades: list[float], task: str = "squad_completion") -> Result:
    """As of F1 or BLEU: hardly an item is exactly right."""
    items = [Item(str(i), "", "", grade == 1) for i, grade in enumerate(grades)]
    return Result(task, "behaviour", "test", {"f1": Metric.from_values(grades)}, items, {}, 0.0)


def test_a_graded_task_is_no_measure_of_behaviour() -> None:
    """No item passes on either side, so by pairs even a ruined model would have lost nothing."""
    clean, ruined = graded([0.8] * 300), graded([0.0] * 300)
    with pytest.raises(RecoverError, match="squad_completion is graded"):
        judge(Gate(), clean, ruined, None, None)
    with pytest.raises(RecoverError, match="name a task whose items pass or fail"):
        must_pass_or_fail(clean)
    with pytest.raises(RecoverError, match="is graded"):
        judge(Gate(), result([True] * 300), graded([0.9] * 300), None, None)
    must_pass_or_fail(result([True, False]))
    same = result([True] * 200)
    assert judge(Gate(), same, same, graded([0.9] * 100, "f1"), 0.9).passed  # knowledge is no matter of pairs


def test_a_graded_task_is_refused_as_soon_as_the_clean_model_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(*_: object, stage: str, **how: object) -> list[Result]:
        measured.append(stage)
        return [graded([0.8] * 4)]

    monkeypatch.setattr("pipelines.cycle.measure_checkpoint", measure)
    project = Project.open(tmp_path, str(BASE))
    job = Job("distill", {"distill": {"probe_every": 0}}, 0, measures=EvalPlan().to_json())
    with pytest.raises(RecoverError, match="is graded"):
        Cycle(project, job).recover(project.clean)
    assert measured == ["measure/clean"]
