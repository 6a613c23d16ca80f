"""What a look at the probe set asks of a student, and what it lets pass because so few items cannot show it."""

from typing import Any

import pytest

from evals.results import Item, Metric, Result
from pipelines.evaluation.plan import EvalPlan
from pipelines.settings import Gate
from pipelines.training.early_stopping import Probe
from pipelines.training.probes import Prober, probe_part


def result(suite: str, right: int, n: int) -> Result:
    task, metric = ("ifeval", "prompt_level_strict_acc") if suite == "behaviour" else ("closed_book", "match")
    items = [Item(f"{task} {i}", "", "", i < right) for i in range(n)]
    return Result(task, suite, "lab", {metric: Metric.from_passes([i.passed for i in items])}, items, {}, 0.0)


class Measured:
    """EvalPlan whose results are known."""

    questions, passages = "some", None

    def __init__(self, behaviour: int, known: int):
        self.found = {"behaviour": result("behaviour", behaviour, 300), "knowledge": result("knowledge", known, 33)}

    def run_suite(self, subject: Any, suite: str, suites: dict[str, str]) -> list[Result]:
        return [self.found[suite]]


class Nobody:
    chat = None

    def sync(self, student: Any) -> None: ...


def look(behaviour: int, known: int, best: float | None = None) -> Probe:
    nobody: Any = Nobody()
    measured: Any = Measured(behaviour, known)
    return Prober(Gate(), measured, [result("behaviour", 276, 300)], {})(nobody, nobody)(best)


@pytest.mark.parametrize(("followed", "holds"), [(276, True), (280, True), (272, True), (271, False), (250, False)])
def test_half_the_margin_may_be_lost(followed: int, holds: bool) -> None:
    assert look(followed, 33).holds is holds


@pytest.mark.parametrize(("known", "holds"), [(33, True), (31, True), (30, True), (28, False), (20, False)])
def test_a_question_or_two_less_than_the_best_look_is_chance(known: int, holds: bool) -> None:
    probe = look(276, known, best=1.0)
    assert probe.holds is holds
    assert probe.knowledge == pytest.approx(known / 33)


def test_a_look_asks_no_more_than_the_verdict_may() -> None:
    asked = {limit: probe_part(EvalPlan(limit=limit), 300).limit for limit in (None, 40, 1000)}
    assert asked == {None: 300, 40: 40, 1000: 300}
