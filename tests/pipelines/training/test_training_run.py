import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.cycle import run_job
from pipelines.job import Job
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.settings.schema import Distill, Settings
from pipelines.training.probes import EarlyStopping
from pipelines.training.stage_context import Stage, TrainingSource
from pipelines.training.training_run import (
    ROLLOUTS_A_STEP,
    RecordedStates,
    RunResult,
    TrainingRun,
    check_logger,
    has_started,
    metric_logger,
    record_rollouts,
    stop_requests,
)
from recovery.collapse import CollapseWatch
from recovery.errors import RecoverError
from recovery.models.students import load_student, save_student
from recovery.objectives import CrossEntropy
from recovery.recipes import recipe
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import FixedRows
from recovery.teachers import FrozenTeacher
from recovery.telemetry import StepRecord, report_tokens
from recovery.train import Plan, TrainState
from tests.models import save_tiny, tiny_student

FEW = ("midtrain.max_steps=2", "midtrain.rows=2", "midtrain.mix.texts=0", "midtrain.mix.answers=0")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """On a tiny base: its states are saved many times."""
    return Project.open(tmp_path, str(save_tiny(tmp_path / "base")))


def test_a_job_that_is_run_again_after_its_checkpoint_has_the_same_result(docs: Path, project: Project) -> None:
    job = prepare_job(project, Request("midtrain", docs=docs, assignments=FEW))
    result, again = run_job(project, job), run_job(project, job)
    assert isinstance(result, RunResult)
    assert result.tokens > 0
    assert again == result
    assert has_started(project, result.run)
    assert not list((project.home / "progress").glob("*"))


@pytest.mark.parametrize(("epochs", "good"), [(1, 25), (2, 22)])  # a state is saved only at the end of a draw
def test_a_collapse_costs_the_steps_since_the_last_report(
    project: Project, monkeypatch: pytest.MonkeyPatch, epochs: int, good: int
) -> None:
    signs = iter([""] * 25 + ["the rollouts repeat themselves"])
    monkeypatch.setattr(CollapseWatch, "after_step", lambda watch, record: next(signs))
    training = small_training(project, steps=40)
    training.objective = CrossEntropy(epochs=epochs)
    result = training.run_to_end()
    assert result.steps == good  # of 40 steps every fourth is reported
    assert result.stopped == f"it collapsed: the rollouts repeat themselves; back at step {good}, the last good state"
    assert project.reader.run(result.run).stopped == result.stopped


def small_training(project: Project, steps: int, run: int | None = None) -> TrainingRun:
    return TrainingRun(
        stage=Stage(project, Job("distill", Settings()), None),
        run=run or project.tracker.start_run(project.id, "distill", None, {}, 0),
        role="recovered",
        start=project.clean,
        student=load_student(project.base),
        source=TrainingSource(project.base, None, False, recipe("sft")),
        states=FixedRows([Sample([5, 6, 7], [False, True, True])], rows=1),
        signal=Labels(),
        plan=Plan(steps, 1e-4),
        monitor=EarlyStopping(Distill()),
    )


@pytest.mark.parametrize(("damaged", "step"), [([""], 4), (["", "-good"], 1)])
def test_a_training_whose_saved_state_is_damaged_goes_on_from_an_earlier_one(
    damaged: list[str], step: int, project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    training = small_training(project, steps=6)
    folder = project.progress_folder(training.run)
    with monkeypatch.context() as for_a_while:
        for_a_while.setattr(CollapseWatch, "after_step", fails_at(3))
        with pytest.raises(MemoryError):
            training.run_to_end()
    shutil.copytree(f"{folder}-good", folder)
    for suffix in damaged:
        os.truncate(Path(f"{folder}{suffix}") / "learning.safetensors", 99)
    resumed = small_training(project, steps=6, run=training.run)
    assert has_started(project, training.run) == (len(damaged) == 1)
    assert resumed.run_to_end().steps == 6
    assert caplog.messages.count(f"The state in {folder} is damaged, so training goes back to step {step}") == 1
    assert not any("Going on" in message for message in caplog.messages)


def test_a_training_goes_on_from_the_latest_of_its_saved_states(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    training = small_training(project, steps=6)
    folder = project.progress_folder(training.run)
    for step in (2, 4):
        with monkeypatch.context() as for_a_while:
            for_a_while.setattr(CollapseWatch, "after_step", fails_at(step))
            with pytest.raises(MemoryError):
                small_training(project, 6, training.run).run_to_end()
        if step == 2:
            shutil.copytree(f"{folder}-good", folder)
    assert small_training(project, 6, training.run).run_to_end().steps == 6
    assert [message for message in caplog.messages if "Going on" in message] == [
        "Going on at step 3 of 6",
        "Going on at step 5 of 6",
    ]


def fails_at(step: int) -> Callable[..., str]:
    def after_step(watch: CollapseWatch, record: StepRecord) -> str:
        if record.step == step:
            raise MemoryError
        return ""

    return after_step


class FixedStates:
    def draw(self, student: Any, step: int) -> list[Sample]:
        return [document(), *(rollout(i) for i in range(step))]


def rollout(number: int) -> Sample:
    tokens = [1, 40 + number, 50, 60]
    return Sample(tokens, [False, False, True, True], [-1.0, -2.0], prompt=f"Prompt {number}", truncated=number == 1)


def document() -> Sample:
    return Sample([1, 2, 3], [False, True, True])


def test_the_first_rollouts_of_the_last_draw_are_recorded_without_documents(project: Project, tmp_path: Path) -> None:
    student, tracker = tiny_student(tmp_path / "student"), project.tracker
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)))
    teacher.bind_student(student)
    states = RecordedStates(FixedStates())
    assert states.draw(student, ROLLOUTS_A_STEP + 2) == states.last
    report, run = partial(report_tokens, student, teacher), tracker.start_run(project.id, "distill")
    record_rollouts(tracker, run, 0, student, report, states.last)
    record_rollouts(tracker, run, 1, student, report, [document()])
    record_rollouts(tracker, run, 2, student, lambda rows: None, [rollout(0)])  # without a teacher
    tracker.flush()
    first, *others, last = project.reader.rollouts(run)
    assert [row.prompt for row in (first, *others)] == [f"Prompt {i}" for i in range(ROLLOUTS_A_STEP)]
    assert [row.truncated for row in (first, *others)] == [False, True, False, False]
    assert first.text == student.chat.text([50, 60])
    assert [len(token) for token in first.tokens] == [4, 4]  # text, KL, and the likeliest tokens of both models
    assert (last.step, last.tokens) == (2, None)


def test_tensorboard_receives_the_metrics_of_the_record(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check_logger("tensorboard")
    with metric_logger("tensorboard", tmp_path, "project", "run-0001", {}) as log_metrics:
        log_metrics({"loss": 2.5}, 0)
        log_metrics({"loss": 1.5}, 1)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run-0001")).Reload()
    assert events.Tags()["scalars"] == ["loss"]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 2.5), (1, 1.5)]


def test_a_stop_that_is_asked_for_while_the_checkpoint_is_written_interrupts_behind_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = small_training(project, steps=2)

    def cancelled_save(*arguments: Any) -> None:
        project.tracker.request_cancel(training.run)
        save_student(*arguments)

    monkeypatch.setattr("pipelines.training.training_run.save_student", cancelled_save)
    with pytest.raises(KeyboardInterrupt):
        training.run_to_end()
    assert small_training(project, steps=2, run=training.run).run_to_end().steps == 2


def test_a_missing_logger_is_reported_before_training() -> None:
    with pytest.raises(RecoverError, match=r"Install it with `pip install wandb`\."):
        check_logger("wandb")


def test_the_first_signal_asks_for_a_stop_and_the_second_interrupts_at_once(caplog: pytest.LogCaptureFixture) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with suppress(KeyboardInterrupt), stop_requests() as requests:
        assert not requests.stop
        signal.raise_signal(signal.SIGTERM)
        assert requests.stop
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it goes on")
    assert caplog.messages == ["Stopping after this step; press Ctrl-C again to stop at once, without saving"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize("signs", [[""] * 4, ["", "", "the rollouts repeat themselves"]])
def test_a_stop_during_the_last_save_interrupts_and_loses_no_step(
    signs: list[str], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = iter(signs)
    monkeypatch.setattr(CollapseWatch, "after_step", lambda watch, record: next(following))
    save, training = TrainingRun._save, small_training(project, steps=4)

    def interrupted_save(run: TrainingRun, state: TrainState, folder: Path) -> bool:
        if folder == project.progress_folder(run.run):  # the last one is the only one there
            signal.raise_signal(signal.SIGINT)
        return save(run, state, folder)

    monkeypatch.setattr(TrainingRun, "_save", interrupted_save)
    with pytest.raises(KeyboardInterrupt):
        training.run_to_end()
    assert project.reader.run_checkpoint(training.run) is None
    result = small_training(project, steps=4, run=training.run).run_to_end()
    assert (result.steps, result.stopped[:12]) == ((4, "") if len(signs) == 4 else (2, "it collapsed"))
