from typing import Any

import pytest

from evals.results import Item, Metric, Result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.settings.schema import Gate
from pipelines.training.probes import DistillProbe, ProbeResult, probe_set

TASKS = {
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
    "retention": ("own_world", "match"),
}


def result(suite: str, passed: int, n: int) -> Result:
    task, metric = TASKS[suite]
    items = [Item(f"{task} {i}", "", "", i < passed) for i in range(n)]
    return Result(task, suite, "lab", {metric: Metric.from_passes([i.passed for i in items])}, items, {}, 0.0)


class FixedPlan:
    """An evaluation plan with fixed results."""

    questions, passages = "some", None

    def __init__(self, behaviour: int, knowledge: int, retention: int | None = None):
        self.probe_all = retention is not None
        self.results = {
            "behaviour": result("behaviour", behaviour, 300),
            "knowledge": result("knowledge", knowledge, 33),
            "retention": result("retention", retention or 0, 100),
        }

    def suites(self, named: dict[str, str]) -> list[str]:
        return list(self.results)

    def run_suite(self, subject: Any, suite: str, suites: dict[str, str]) -> list[Result]:
        return [self.results[suite]]


class FakeModel:
    """Stands in for the student and for its engine; with fixed results neither generates anything."""

    chat = None

    def sync(self, student: Any) -> None: ...


def probe(behaviour: int, knowledge: int, best_so_far: float | None = None, known: float | None = None) -> ProbeResult:
    model: Any = FakeModel()
    plan: Any = FixedPlan(behaviour, knowledge)
    return DistillProbe(Gate(), plan, [result("behaviour", 276, 300)], {}, known).on(model, model)(best_so_far)


@pytest.mark.parametrize(("passed", "holds"), [(276, True), (280, True), (272, True), (271, False), (250, False)])
def test_a_probe_holds_if_at_most_half_of_the_margin_is_lost(passed: int, holds: bool) -> None:
    assert probe(passed, 33).holds is holds


@pytest.mark.parametrize(("correct", "holds"), [(33, True), (31, True), (30, True), (28, False), (20, False)])
def test_a_question_or_two_below_the_best_probe_is_within_the_error(correct: int, holds: bool) -> None:
    probed = probe(276, correct, best_so_far=1.0)
    assert probed.holds is holds
    assert probed.knowledge == pytest.approx(correct / 33)


def test_what_a_fine_tune_knew_before_other_moves_counts_too() -> None:
    assert probe(276, 20).holds
    assert probe(276, 20, known=0.61).holds
    assert not probe(276, 20, known=0.9).holds


def test_a_probe_takes_no_more_items_than_the_verdict() -> None:
    limits = {limit: probe_set(EvalPlan(limit=limit), 300).limit for limit in (None, 40, 1000)}
    assert limits == {None: 300, 40: 40, 1000: 300}


@pytest.mark.parametrize(("known", "holds", "lost"), [(100, True, 0.0), (98, True, 0.02), (60, False, 0.4)])
def test_a_probe_of_everything_also_fails_by_what_was_known_before(known: int, holds: bool, lost: float) -> None:
    model: Any = FakeModel()
    plan: Any = FixedPlan(276, 33, known)
    clean = [result("behaviour", 276, 300), result("retention", 100, 100)]
    probed = DistillProbe(Gate(), plan, clean, {}).on(model, model)(None)
    assert (probed.holds, probed.lost, probed.retention) == (holds, pytest.approx(lost), known / 100)
    assert f"what it knew before {known / 100:.3f}" in str(probed)
