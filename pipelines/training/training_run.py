"""One training run in the record: reported step by step, saved as it goes, and resumed where it stopped."""

import importlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from db import RecordError
from db.tables import COLLAPSED, Checkpoint
from db.tracker import Tracker
from evals.suites.config import resolve_suites
from pipelines.log import STEPS, StepTimer, log
from pipelines.project.project import Project, weights_hash
from pipelines.training.probes import EarlyStopping, ProbeResult
from pipelines.training.stage_context import Role, Stage, TrainingSource
from recovery.errors import RecoverError
from recovery.models.students import Student, checkpoint_metadata, save_student
from recovery.processes import training_state
from recovery.progress import track
from recovery.recipes import objective_of
from recovery.resume_state import discard_progress, load_progress, save_progress, saved_step
from recovery.samples import Sample
from recovery.signals import Signal
from recovery.states import States
from recovery.teachers import EmaTeacher
from recovery.telemetry import StepRecord, TokenReport
from recovery.train import Plan, TrainState, train

Report = Callable[[list[Sample]], list[list[TokenReport]] | None]  # None without a teacher
RECORD_PAUSE = 60.0  # seconds, where the record did not answer
ROLLOUTS_A_STEP = 4  # recorded of about ten steps in a run
MetricLogger = Callable[[dict[str, float], int], Any]


@dataclass(frozen=True)
class RunResult:
    checkpoint: Checkpoint
    run: int
    steps: int
    tokens: int = 0
    seconds: float = 0.0
    stopped: str = ""  # why it ended before its last step
    warm_start: dict[str, Any] | None = None  # the share of the interpolation, and what was tried


@dataclass
class TrainingRun:
    stage: Stage
    run: int
    role: Role  # of the checkpoint it makes
    start: Checkpoint
    student: Student
    states: States
    signal: Signal
    plan: Plan
    source: TrainingSource  # of student and signal, for other processes
    monitor: EarlyStopping
    warm_start: dict[str, Any] | None = None  # the share of the interpolation, and what was tried
    stopped: str = ""  # why it ends before its last step, perhaps before its first
    average: EmaTeacher | None = None  # the teacher, if it is an average of the student

    def __post_init__(self) -> None:
        self.objective = objective_of(self.source.recipe)
        self._folder = self.project.progress_folder(self.run)
        self._last_good = last_good(self._folder)
        self._ask_again = 0.0

    def run_to_end(self) -> RunResult:
        """Train from the start or from the last saved state, write the checkpoint and record it."""
        if (written := self.project.reader.run_checkpoint(self.run)) is not None:  # it was interrupted after that
            checkpoint = self.project.verify(written)
            about = checkpoint_metadata(checkpoint.path).get("trained", {})
            return RunResult(checkpoint, self.run, checkpoint.step or 0, **about)
        with training_state(self.student, self.signal, self.objective, self.plan, self.source.load) as state:
            self._resume(state)
            if not self.stopped and state.step < self.plan.steps:
                self.project.tracker.discard_steps(self.run, state.step)
                self._train(state)
        result = self._save_checkpoint(state.step)
        if self._is_cancelled():  # since the last step; the command goes on behind this checkpoint
            raise KeyboardInterrupt
        return result

    def _resume(self, state: TrainState) -> None:
        folders = saved_states(self.project, self.run)
        saved = load_progress(folders[0], self.student, state, self.average) if folders else None
        if saved:
            self.monitor.restore(saved["monitor"])
            self.warm_start, self.stopped = saved["warm_start"], saved["stopped"]
        if self._folder.exists() and self._folder not in folders:
            log.warning(f"The state in {self._folder} is damaged, so training goes back to step {state.step + 1}")
        elif saved and state.step < self.plan.steps:
            log.info(f"Going on at step {state.step + 1} of {self.plan.steps}")

    @property
    def project(self) -> Project:
        return self.stage.project

    def _train(self, state: TrainState) -> None:
        states, last_save, due_good = RecordedStates(self.states), time.monotonic(), False
        report = partial(state.report, self.student, self.signal)
        report_every, timer = max(1, self.plan.steps // 10), StepTimer(self.plan.steps, state.step)
        update = track(STEPS, self.plan.steps)
        if self.monitor.limits is not None and (state.step == 0 or saved_step(self._last_good) is None):
            self._save(state, self._last_good)
        settings, name = self.stage.settings, f"run-{self.run:04d}"
        metrics = metric_logger(settings.report_to, self.project.home, self.project.name, name, settings.model_dump())
        with stop_requests() as requests, metrics as log_metrics:
            for record in train(self.student, states, self.signal, self.objective, self.plan, state):
                if self.average is not None:
                    self.average.move()
                self.project.tracker.step(self.run, record.step, record.metrics())
                update(record.step + 1)
                log_metrics(record.metrics(), record.step)
                is_report = record.step % report_every == 0 or record.step == self.plan.steps - 1
                if (is_report or timer.is_due()) and not requests.stop:  # then nothing comes before the save
                    log.info(_progress(record, self.plan) + timer.left(record.step))
                if is_report:
                    drawn = self.signal.prepare(states.last)  # with its rewards
                    record_rollouts(self.project.tracker, self.run, record.step, self.student, report, drawn)
                probe_start = time.monotonic()
                probe, self.stopped = self.monitor.after_step(record, self.plan.steps)
                if probe is not None:
                    self._record_probe(record.step, probe, time.monotonic() - probe_start)
                if self.monitor.collapsed:
                    self._return_to_last_good(state)
                    return
                is_good = is_report if self.monitor.probe is None else probe is not None
                due_good = (due_good or is_good) and self.monitor.limits is not None and not self.stopped
                if due_good and self._save(state, self._last_good):  # not before the end of a draw
                    due_good = False
                leaving = requests.stop or self._is_cancelled()
                due = time.monotonic() - last_save > 60 * settings.save_minutes
                if (due or self.stopped or leaving) and self._save(state, self._folder):
                    last_save = time.monotonic()
                    if leaving:
                        raise KeyboardInterrupt
                if self.stopped:
                    return
            self._save(state, self._folder)

    def _save_checkpoint(self, steps: int) -> RunResult:
        if self.stopped:
            log.info(f"Stopped after {steps} of {self.plan.steps} steps: {self.stopped}")
            self.project.tracker.stopped_early(self.run, self.stopped)
        folder, monitor = self.project.checkpoint_folder(self.run), self.monitor.state
        trained = {"tokens": monitor.tokens, "seconds": monitor.seconds, "stopped": self.stopped}
        about = {"parent": self.start.path, "run": self.run, "step": steps, "suites": resolve_suites(self.project.base)}
        save_student(self.student, folder, about | {"trained": trained | {"warm_start": self.warm_start}})
        size = sum(file.stat().st_size for file in folder.iterdir())
        id = self.project.tracker.checkpoint(
            self.project.id,
            self.role,
            folder,
            "adapter" if self.student.has_adapter else "full",
            parent=self.start.id,
            run=self.run,
            cycle=self.stage.cycle,
            hash=weights_hash(folder),
            bytes=size,
            step=steps,
        )
        discard_progress(self._last_good)
        discard_progress(self._folder)
        checkpoint = self.project.reader.checkpoint(id)
        assert checkpoint is not None
        return RunResult(checkpoint, self.run, steps, monitor.tokens, monitor.seconds, self.stopped, self.warm_start)

    def _save(self, state: TrainState, folder: Path) -> bool:
        self.project.tracker.flush()  # the state on disk must not be ahead of the record
        notes = {"monitor": self.monitor.as_dict(), "warm_start": self.warm_start, "stopped": self.stopped}
        return save_progress(folder, self.student, state, notes, self.average)

    def _return_to_last_good(self, state: TrainState) -> None:
        saved = load_progress(self._last_good, self.student, state, self.average)
        where = f"back at step {state.step}, the last good state" if saved else "no earlier state was saved"
        self.stopped = f"{COLLAPSED}: {self.stopped}; {where}"
        self._save(state, self._folder)

    def _is_cancelled(self) -> bool:
        if time.monotonic() < self._ask_again:
            return False
        try:
            return self.project.reader.cancel_requested(self.run)
        except RecordError:  # the database is away: training goes on, and does not wait for it at every step
            self._ask_again = time.monotonic() + RECORD_PAUSE
            return False

    def _record_probe(self, step: int, probe: ProbeResult, seconds: float) -> None:
        values = {f"probe/{name}": value for name, value in probe.scores.items()}
        values |= {"probe/holds": float(probe.holds), "probe/seconds": seconds}
        self.project.tracker.step(self.run, step, values)
        log.info(f"  probe at step {step + 1}: {probe}")


def _progress(record: StepRecord, plan: Plan) -> str:
    parts = [f"step {record.step + 1}/{plan.steps}", f"loss {record.loss:.3f}"]
    if record.kl is not None:
        parts.append(f"KL {record.kl:.3f}")
    if record.reward is not None:
        parts.append(f"reward {record.reward:.3f}")
    if record.rollout_length is not None:
        parts.append(f"length {record.rollout_length:.0f}")
    return "  " + " · ".join([*parts, f"{record.tokens_per_second:,.0f} tokens/s"])


class RecordedStates:
    def __init__(self, states: States):
        self.states = states
        self.last: list[Sample] = []

    def draw(self, student: Student, step: int) -> list[Sample]:
        self.last = self.states.draw(student, step)
        return self.last


def record_rollouts(
    tracker: Tracker, run: int, step: int, student: Student, report: Report, samples: list[Sample]
) -> None:
    """Record the first rollouts among the samples; documents are not recorded."""
    rows = [row for row in samples if row.prompt is not None and row.logprobs is not None][:ROLLOUTS_A_STEP]
    if not rows:
        return
    reports = report(rows)
    rollouts = [
        {
            "prompt": row.prompt,
            "text": student.chat.text(row.tokens[len(row.tokens) - len(row.logprobs or []) :]),
            "truncated": row.truncated,
            "reward": row.reward,
            "tokens": [list(astuple(token)) for token in reports[i]] if reports else None,
        }
        for i, row in enumerate(rows)
    ]
    tracker.rollouts(run, step, rollouts)


@contextmanager
def metric_logger(name: str, home: Path, project: str, run: str, settings: Mapping[str, Any]) -> Iterator[MetricLogger]:
    if name == "none":
        yield lambda values, step: None
    elif name == "tensorboard":
        with check_logger(name).SummaryWriter(str(home / "tensorboard" / run)) as writer:
            yield lambda values, step: [writer.add_scalar(key, value, step) for key, value in values.items()]
    else:  # trackio has wandb's interface
        module = check_logger(name)
        module.init(project=project, name=run, config=dict(settings))
        try:
            yield lambda values, step: module.log(values, step=step)
        finally:
            module.finish()


def check_logger(name: str) -> Any:
    """The logger's module; raises where it is not installed."""
    if name == "none":
        return None
    try:
        return importlib.import_module("torch.utils.tensorboard" if name == "tensorboard" else name)
    except ImportError as error:
        raise RecoverError(
            f"The logger {name} (report_to) is not installed. Install it with `pip install {name}`."
        ) from error


class StopRequests:
    """Signal handler: the first request sets `stop`, a second one interrupts at once."""

    stop = False

    def __call__(self, *_: Any) -> None:
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        log.info("Stopping after this step; press Ctrl-C again to stop at once, without saving")


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Interrupts at the end, too, where a stop was requested so late that nothing has followed it."""
    requests = StopRequests()
    handlers = {}
    with suppress(ValueError):  # only the main thread can handle signals
        handlers = {number: signal.signal(number, requests) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if requests.stop:
        raise KeyboardInterrupt


def has_started(project: Project, run: int) -> bool:
    return bool(saved_states(project, run)) or project.reader.run_checkpoint(run) is not None


def saved_states(project: Project, run: int) -> list[Path]:
    """The folders of those that are whole, the latest first; of the same step, the one that may have ended the run."""
    folder = project.progress_folder(run)
    steps = {state: step for state in (folder, last_good(folder)) if (step := saved_step(state)) is not None}
    return sorted(steps, key=lambda state: -steps[state])


def last_good(folder: Path) -> Path:
    """The state at the start, or at the last probe that did not end the run; without probes at the last report."""
    return folder.with_name(folder.name + "-good")
