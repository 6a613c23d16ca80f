import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.results import Result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.schema import Distill, Gate, Settings
from pipelines.teacher_choice import Itself, Served
from pipelines.training.probes import (
    PROBES_IN_A_ROW,
    DistillProbe,
    EarlyStopping,
    ProbeResult,
    clean_replies,
    probe_set,
)
from pipelines.training.stage_context import Stage, Teachers
from recovery.collapse import CleanReplies, CollapseWatch
from recovery.lab import BASE
from recovery.models.students import load_chat
from recovery.recipes import recipe
from recovery.states import Prompt
from recovery.telemetry import StepRecord
from tests.evals.fakes import result
from tests.pipelines.options import recover, set_options
from tests.step_records import step_record

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


LIMITS = Distill(probe_every=2)
CLEAN = CleanReplies(64, truncated=0.62, repetition=0.05, entropy=3.1)  # SmolLM2's, at 320 tokens


def run(monitor: EarlyStopping, records: list[StepRecord]) -> tuple[int, str]:
    """The step after which the monitor stops, and its reason; -1 if it does not stop."""
    for record in records:
        _, reason = monitor.after_step(record, steps=len(records))
        if reason:
            return record.step, reason
    return -1, ""


@pytest.mark.parametrize("teaches_something_new", [False, True])
def test_it_stops_after_two_probes_in_a_row_that_hold_and_not_before(teaches_something_new: bool) -> None:
    results = iter([True, False, *[True] * 7])

    def probe(best: float | None) -> ProbeResult:
        return ProbeResult(0.9, None, 0.0, next(results))

    monitor = EarlyStopping(LIMITS, probe, until_probes_hold=not teaches_something_new)
    step, reason = run(monitor, [step_record(i) for i in range(20)])
    assert step == (-1 if teaches_something_new else 7)  # probes after steps 2, 4, 6 and 8
    assert (str(PROBES_IN_A_ROW) in reason) != teaches_something_new


@pytest.mark.parametrize("may_collapse", [True, False])
def test_what_moves_away_from_its_beginning_ends_only_where_a_teacher_is_the_aim(may_collapse: bool) -> None:
    """With ready-made answers the KL to an anchor has to rise, and the entropy may."""
    records = [step_record(step, kl=0.1 + 0.3 * step, entropy=1.0 + step / 4) for step in range(30)]
    step, _ = run(EarlyStopping(LIMITS, may_collapse=may_collapse), records)
    assert (step > 0) == may_collapse


@pytest.mark.parametrize(("of_warm_start", "compared_with"), [(None, [None, 0.5, 0.9]), (0.8, [0.8, 0.8, 0.9])])
def test_probes_are_compared_with_the_best_yet(of_warm_start: float | None, compared_with: list[float | None]) -> None:
    knowledge, best_before = iter([0.5, 0.9, 0.7]), list[float | None]()

    def probe(best: float | None) -> ProbeResult:
        best_before.append(best)
        return ProbeResult(0.9, next(knowledge), 0.0, False)

    monitor = EarlyStopping(LIMITS, probe)
    monitor.state.best_knowledge = of_warm_start
    run(monitor, [step_record(i) for i in range(8)])  # the last step is evaluated, not probed
    assert best_before == compared_with


@pytest.mark.parametrize(("limit", "expected"), [({"max_minutes": 0.05}, "minutes"), ({"max_flops": 35.0}, "FLOPs")])
def test_a_spent_budget_ends_training(limit: dict[str, float], expected: str) -> None:
    monitor = EarlyStopping(LIMITS.model_copy(update=limit))
    step, reason = run(monitor, [step_record(i) for i in range(20)])
    assert step == 3
    assert expected in reason


def test_a_restored_monitor_decides_like_an_uninterrupted_one() -> None:
    limited = LIMITS.model_copy(update={"max_flops": 95.0})
    budget = [step_record(i) for i in range(20)]
    collapse = [step_record(i, truncated=min(1.0, 0.2 * i), rollouts=16) for i in range(20)]
    for limits, records in ((limited, budget), (LIMITS, collapse)):
        uninterrupted, first = (EarlyStopping(limits, clean=CLEAN) for _ in range(2))
        second = EarlyStopping(limits)  # what is saved counts
        for record in records[:5]:
            first.after_step(record, 20)
        second.restore(json.loads(json.dumps(first.as_dict())))
        assert run(second, records[5:]) == run(uninterrupted, records) != (-1, "")


FEW = ("rows=4", "max_new_tokens=24", "prompts=16", "probe_every=0", "max_steps=2", "warm_start=off")


@pytest.mark.usefixtures("short_replies")
def test_the_bases_replies_watch_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[CleanReplies | None] = []

    def after_step(watch: CollapseWatch, record: StepRecord) -> str:
        watched.append(watch.clean)
        return ""

    monkeypatch.setattr(CollapseWatch, "after_step", after_step)
    settings = set_options(*(f"distill.{assignment}" for assignment in FEW))
    command = ["distill", "--student", str(BASE), "--recipe", "opd", "--limit", "2", "--json", *settings]
    completed = recover(*command, "--project", tmp_path)
    assert completed.exit_code in (0, 3), completed.stderr
    assert "Sampling 16 replies of base, to tell a collapse from a recovery" in completed.stderr
    assert "Replies of base:" in completed.stderr
    clean = watched[0]
    assert watched == [clean] * 2
    assert clean.count == 16
    assert 0 < clean.truncated < 1
    assert 0 < clean.entropy < 3


def test_replies_are_sampled_once_and_anew_to_other_prompts_or_with_another_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project, chat = Project.open(tmp_path, str(BASE)), load_chat(str(BASE))
    prompts = [Prompt(text, chat.prompt(text)) for text in ("Name a metal.", "Write about a lake.", "Name a city.")]
    measured = {
        clean_replies(_stage(project, limit), recipe("opd"), Teachers(project.clean), some)
        for limit, some in ((8, prompts), (8, prompts[:2]), (1, prompts), (8, prompts))
    }
    assert len(measured) == 3
    assert len(list((tmp_path / ".recover" / "cache").glob("clean-replies-*.json"))) == 3
    assert caplog.text.count("to tell a collapse from a recovery") == 3


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("offpolicy-kl", None),  # nothing is rolled out
        ("grpo", None),  # a reward
        ("sdft", Itself("ema")),
        ("opd", Served("http://localhost:1")),
    ],
)
def test_without_a_clean_model_nothing_is_sampled(project: Project, name: str, instead: Itself | Served | None) -> None:
    teachers = Teachers(project.clean, instead=instead)
    assert clean_replies(_stage(project, 8), recipe(name), teachers, [Prompt("Hi", [5, 6])]) is None


def _stage(project: Project, limit: int) -> Stage:
    return Stage(project, Job("distill", Settings(distill=Distill(max_new_tokens=limit))))
