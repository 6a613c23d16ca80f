from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.results import Result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.settings.schema import Gate
from pipelines.training.probes import DistillProbe, ProbeResult, probe_set
from tests.evals.fakes import result

TASKS = {"behaviour": "ifeval", "knowledge": "closed_book", "retention": "own_world"}


def counted(suite: str, passed: int, n: int) -> Result:
    return result([i < passed for i in range(n)], TASKS[suite], suite)


MODEL: Any = SimpleNamespace(chat=None, sync=lambda student: None)  # with fixed results nothing is generated
Probe = Callable[..., ProbeResult]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    def with_right_items(
        behaviour: int,
        knowledge: int,
        retention: int | None = None,
        known: float | None = None,
        best: float | None = None,
    ) -> ProbeResult:
        passed = {"behaviour": (behaviour, 300), "knowledge": (knowledge, 33), "retention": (retention or 0, 100)}
        results = {suite: counted(suite, *counts) for suite, counts in passed.items()}
        monkeypatch.setattr(EvalPlan, "run_suite", lambda plan, subject, suite, named: [results[suite]])
        plan = EvalPlan(questions=Path("some.jsonl"), probe_all=retention is not None)
        clean = [counted("behaviour", 276, 300), counted("retention", 100, 100)]
        return DistillProbe(Gate(), plan, clean, {}, known).on(MODEL, MODEL)(best)

    return with_right_items


@pytest.mark.parametrize(("passed", "holds"), [(276, True), (280, True), (272, True), (271, False), (250, False)])
def test_a_probe_holds_if_at_most_half_of_the_margin_is_lost(probe: Probe, passed: int, holds: bool) -> None:
    assert probe(passed, 33).holds is holds


@pytest.mark.parametrize(("correct", "holds"), [(33, True), (31, True), (30, True), (28, False), (20, False)])
def test_a_question_or_two_below_the_best_is_within_the_error(probe: Probe, correct: int, holds: bool) -> None:
    probed = probe(276, correct, best=1.0)
    assert probed.holds is holds
    assert probed.knowledge == pytest.approx(correct / 33)


def test_what_a_fine_tune_knew_before_other_moves_counts_too(probe: Probe) -> None:
    assert probe(276, 20).holds
    assert probe(276, 20, known=0.61).holds
    assert not probe(276, 20, known=0.9).holds


def test_a_probe_takes_no_more_items_than_the_verdict() -> None:
    limits = {limit: probe_set(EvalPlan(limit=limit), 300).limit for limit in (None, 40, 1000)}
    assert limits == {None: 300, 40: 40, 1000: 300}


@pytest.mark.parametrize(("known", "holds", "lost"), [(100, True, 0.0), (98, True, 0.02), (60, False, 0.4)])
def test_a_probe_of_everything_fails_by_what_was_known(probe: Probe, known: int, holds: bool, lost: float) -> None:
    probed = probe(276, 33, retention=known)
    assert (probed.holds, probed.lost, probed.retention) == (holds, pytest.approx(lost), known / 100)
    assert f"what it knew before {known / 100:.3f}" in str(probed)
