"""One run of the core's loop, on record: told step by step, saved as it goes, picked up where it stopped."""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from db.errors import RecordError
from db.views import Checkpoint
from evals.suites.config import placed
from pipelines.log import log
from pipelines.machine.resource_usage import Meter
from pipelines.project.project import Project, weights_hash
from pipelines.settings import Settings
from pipelines.training.early_stopping import Probe, Watch
from pipelines.training.interrupts import listening
from pipelines.training.loggers import Log, sink
from recovery.batch import Sample
from recovery.losses.objectives import Objective
from recovery.models.students import Student, checkpoint_metadata, save_student
from recovery.resume_state import discard_progress, has_progress, load_progress, save_progress
from recovery.signals import Signal
from recovery.states import States
from recovery.telemetry.step_record import StepRecord
from recovery.telemetry.token_report import report_tokens
from recovery.train import Plan, TrainState, train

NOTHING_TOLD: dict[str, Any] = {"tokens": 0, "seconds": 0.0}  # by earlier releases
SHOWN = 4  # rollouts that are kept of a step, of ten steps in a run


@dataclass(frozen=True)
class RunResult:
    checkpoint: Checkpoint
    run: int
    steps: int
    tokens: int
    seconds: float
    stopped: str = ""  # why it ended before its last step
    warm: dict[str, Any] | None = None  # the move in weights that came first: its share, and what was tried
    replay: dict[str, Any] | None = None  # the share of replay, where it was found by trying, and what was tried


class RecordedStates:
    """States, and the last draw from them: what the student wrote is worth keeping."""

    def __init__(self, states: States):
        self.states = states
        self.last: list[Sample] = []

    def draw(self, student: Student, step: int) -> list[Sample]:
        self.last = self.states.draw(student, step)
        return self.last


@dataclass
class TrainingRun:
    """What is learned by whom, and where it goes on record."""

    project: Project
    run: int
    student: Student
    states: States
    signal: Signal
    objective: Objective
    plan: Plan
    start: Checkpoint
    role: Any  # of the checkpoint it makes
    cycle: int | None
    settings: Settings
    watch: Watch
    enough: str = ""  # why not even a first step is needed

    @property
    def begun(self) -> bool:
        return has_progress(self._folder) or self.project.reader.run_checkpoint(self.run) is not None

    def learn(self) -> RunResult:
        made = self.project.reader.run_checkpoint(self.run)
        if made is not None:  # ended between the checkpoint and the last word on its run
            here = self.project.verify(made)
            return RunResult(
                here, self.run, made.step or 0, **{**NOTHING_TOLD, **checkpoint_metadata(here.path).get("trained", {})}
            )
        state = TrainState.start(self.student, self.plan)
        if (notes := load_progress(self._folder, self.student, state)) is not None:
            self.watch.restore(notes["watch"])
            stopped: str = notes["stopped"]
            if state.step < self.plan.steps:
                log.info(f"going on at step {state.step + 1} of {self.plan.steps}")
        else:
            stopped = self.enough
        if not stopped and state.step < self.plan.steps:
            stopped = self._train(state)
        return self._ship(state.step, stopped)

    def _train(self, state: TrainState) -> str:
        heard, last_save, shown = RecordedStates(self.states), time.monotonic(), max(1, self.plan.steps // 10)
        meter = Meter()
        with listening() as ending, self._sink() as report:
            for record in train(self.student, heard, self.signal, self.objective, self.plan, state):
                self.project.tracker.step(self.run, record.step, record.metrics())
                report(record.metrics(), record.step)
                if record.step % shown == 0 or record.step == self.plan.steps - 1:
                    log.info(_progress(record, self.plan))
                    self._show(record.step, heard.last)
                    self.project.tracker.resources(self.run, meter.look())
                probe, stopped = self.watch.after(record, self.plan.steps)
                if probe is not None:
                    self._tell(record.step, probe)
                if self.watch.collapsed:
                    return self._back_to_good(state, stopped)
                if probe is not None and not stopped:
                    self._save(state, self._good)
                leaving = ending.wanted or self._cancelled()
                due = time.monotonic() - last_save > 60 * self.settings.save_minutes
                if (due or stopped or leaving) and self._save(state, self._folder, stopped):
                    last_save = time.monotonic()
                    if leaving:
                        raise KeyboardInterrupt
                if stopped:
                    return stopped
            self._save(state, self._folder)
        return ""

    def _sink(self) -> AbstractContextManager[Log]:
        told, name = self.settings.as_dict(), f"run-{self.run:04d}"
        return sink(self.settings.report_to, self.project.home, self.project.name, name, told)

    def _ship(self, steps: int, stopped: str) -> RunResult:
        if stopped:
            log.info(f"stopped after {steps} of {self.plan.steps} steps: {stopped}")
            self.project.tracker.event(self.run, f"stopped after {steps} steps: {stopped}")
        folder = self.project.checkpoint_folder(self.run)
        notes = self.watch.notes
        told: dict[str, Any] = {
            "tokens": notes.tokens,
            "seconds": notes.seconds,
            "stopped": stopped,
            "warm": notes.warm,
        }
        about = {"parent": self.start.path, "run": self.run, "step": steps, "suites": placed(self.project.base)}
        about["trained"] = told
        save_student(self.student, folder, about)
        made = self.project.tracker.checkpoint(
            self.project.id,
            self.role,
            folder,
            "adapter" if self.student.has_adapter else "full",
            parent=self.start.id,
            run=self.run,
            cycle=self.cycle,
            hash=weights_hash(folder),
            bytes=sum(p.stat().st_size for p in folder.iterdir()),
            step=steps,
        )
        for place in (self._folder, self._good):
            discard_progress(place)
        checkpoint = self.project.reader.checkpoint(made)
        assert checkpoint is not None
        return RunResult(checkpoint, self.run, steps, **told)

    @property
    def _folder(self) -> Path:
        return self.project.home / "progress" / f"run-{self.run:04d}"

    @property
    def _good(self) -> Path:
        """Where it stood at the last probe that found nothing wrong."""
        return self._folder.with_name(self._folder.name + "-good")

    def _save(self, state: TrainState, folder: Path, stopped: str = "") -> bool:
        self.project.tracker.flush()  # no step may be done on disk that the record has not heard of
        return save_progress(folder, self.student, state, {"watch": self.watch.as_dict(), "stopped": stopped})

    def _back_to_good(self, state: TrainState, reason: str) -> str:
        found = load_progress(self._good, self.student, state)
        back = f"back at step {state.step}, the last that looked well" if found else "no earlier state was kept"
        reason = f"{reason}; {back}"
        self._save(state, self._folder, reason)
        return reason

    def _cancelled(self) -> bool:
        try:
            return self.project.reader.cancel_requested(self.run)
        except RecordError:  # the record is away: it is told later, and training goes on
            return False

    def _tell(self, step: int, probe: Probe) -> None:
        seen = {
            "probe/behaviour": probe.behaviour,
            "probe/knowledge": probe.knowledge,
            "probe/holds": float(probe.holds),
        }
        self.project.tracker.step(self.run, step, seen)
        known = "" if probe.knowledge is None else f" · knowledge {probe.knowledge:.3f}"
        log.info(f"  probe at step {step + 1}: behaviour {probe.behaviour:.3f}{known}")

    def _show(self, step: int, heard: list[Sample]) -> None:
        rows = [row for row in heard if row.prompt is not None and row.logprobs is not None][:SHOWN]
        if not rows:
            return
        teacher = self.signal.teacher
        tokens = (
            [[list(asdict(t).values()) for t in row] for row in report_tokens(self.student, teacher, rows)]
            if teacher
            else []
        )
        self.project.tracker.rollouts(
            self.run,
            step,
            [
                {
                    "prompt": row.prompt,
                    "text": self.student.chat.text([t for t, w in zip(row.tokens, row.targets, strict=True) if w]),
                    "truncated": row.truncated,
                    "reward": row.reward,
                    "tokens": tokens[i] if tokens else None,
                }
                for i, row in enumerate(rows)
            ],
        )


def _progress(record: StepRecord, plan: Plan) -> str:
    parts = [f"step {record.step + 1}/{plan.steps}", f"loss {record.loss:.3f}"]
    if record.kl is not None:
        parts.append(f"KL {record.kl:.3f}")
    if record.rollout_length is not None:
        parts.append(f"length {record.rollout_length:.0f}")
    return "  " + " · ".join([*parts, f"{record.tokens_per_second:,.0f} tokens/s"])
