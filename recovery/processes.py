"""A training on several processes. The first one leads: it runs the command, draws the rows, decides and saves.

The others follow: they load the same models, and wait for what the leader sends. It sends the rows of each step, and
the prompts of each generation; every process computes its share of them. What else the leader does, such as measuring,
sends nothing, so the followers wait for as long as that takes.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.distributed import broadcast, gather, processes, rank, together, whole_state
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import LostProcess
from recovery.models.students import Student
from recovery.objectives import Objective
from recovery.samples import Sample
from recovery.signals import Signal
from recovery.teachers import frozen_teachers
from recovery.telemetry import StepMetrics, TokenReport
from recovery.train import Learning, Plan, TrainState

Load = Callable[[], tuple[Student, Signal]]  # in another process than the leader's, so it must be picklable


@dataclass
class Member(Learning):
    """One process of a training. Each method is run by all processes together."""

    def __post_init__(self) -> None:
        from recovery.sharding import ShardedStudent, shard  # takes time, and a single process has no use for it

        if self.plan.checkpointing:
            self.student.causal.gradient_checkpointing_enable()
        self.weights = ShardedStudent(self.student)
        for teacher in frozen_teachers(self.signal.teacher):
            shard(teacher.model.causal)
        with self.weights.step():
            self.state = TrainState.start(self.student, self.plan)

    def step(self, samples: list[Sample], step: int, bad_in_a_row: int, metrics: StepMetrics | None = None) -> Any:
        metrics = metrics or StepMetrics()
        self.state.step, self.state.bad_in_a_row = step, bad_in_a_row
        with self.weights.step():
            result = self.state.take_step(self, samples, metrics)
        for values in gather(metrics.of_tokens if rank() else {}):
            metrics.add_of_tokens(values)
        return result

    def generate(
        self, prompts: Sequence[list[int]], sampling: Sampling, batches: list[list[int]]
    ) -> list[dict[int, Generation]]:
        part = slice(rank(), None, processes())
        return gather(TransformersEngine(self.student).generate_part(prompts, sampling, batches, part))

    def report(self, samples: list[Sample]) -> list[list[TokenReport]] | None:
        return self.state.report(self.student, self.signal, samples)

    def optimizer_state(self) -> dict[str, Any]:
        return whole_state(self.state.optimizer)

    def load(self, path: Path) -> None:
        self.weights.take_over()
        self.state.load(path)


_training: Member | None = None  # of this process


def call(name: str, *arguments: Any, **of_leader: Any) -> Any:
    """Have every process run a method of its member; `of_leader` are arguments of the leader alone."""
    assert _training is not None
    broadcast((name, arguments))
    with together():
        return getattr(_training, name)(*arguments, **of_leader)


class SharedState(TrainState):
    """The leader's state of a training on several processes."""

    def take_step(self, learning: Learning, samples: list[Sample], metrics: StepMetrics) -> tuple[int, float, bool]:
        result: tuple[int, float, bool] = call("step", samples, self.step, self.bad_in_a_row, metrics=metrics)
        assert _training is not None
        self.bad_in_a_row = _training.state.bad_in_a_row
        return result

    def report(self, student: Student, signal: Signal, samples: list[Sample]) -> list[list[TokenReport]] | None:
        return call("report", samples)

    def optimizer_state(self) -> dict[str, Any]:
        return call("optimizer_state")

    def load(self, path: Path) -> None:
        call("load", path)
        assert _training is not None
        self.step, self.bad_in_a_row = _training.state.step, _training.state.bad_in_a_row
        self.between_draws = True


class SharedEngine(TransformersEngine):
    """Generates with all processes while its student is trained by them."""

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        if _training is None or _training.student is not self.student:
            return super().generate(prompts, sampling)
        batches = self.batches(prompts, sampling.max_new_tokens)
        replies = {i: reply for part in call("generate", prompts, sampling, batches) for i, reply in part.items()}
        return [replies[i] for i in range(len(prompts))]


@contextmanager
def training_state(
    student: Student, signal: Signal, objective: Objective, plan: Plan, load: Load
) -> Iterator[TrainState]:
    """The state of a new training, on all processes that there are; the others `load` student and signal.

    Outside of a step the leader's student is whole, as that of a single process."""
    global _training
    if processes() == 1:
        yield TrainState.start(student, plan)
        return
    broadcast(("begin", (load, objective, plan, student.vocabulary)))
    with together():
        _training = Member(student, signal, objective, plan)
    try:
        yield SharedState(_training.state.optimizer)
    finally:
        _end()
    broadcast(("end", ()))


def _begin(load: Load, objective: Objective, plan: Plan, vocabulary: int) -> None:
    global _training
    student, signal = load()
    student.vocabulary = vocabulary  # a teacher that only writes may have bound the leader's
    with together():
        _training = Member(student, signal, objective, plan)


def _end() -> None:
    global _training
    _training = None
    gc.collect()  # sharded modules refer to each other


def follow() -> None:
    """Do what the leader sends, until it dismisses the followers or is gone."""
    try:
        while (message := broadcast()) is not None:
            name, arguments = message
            if name == "begin":
                _begin(*arguments)
            elif name == "end":
                _end()
            else:
                with together():
                    getattr(_training, name)(*arguments)
    except LostProcess:
        os._exit(LostProcess.EXIT_CODE)  # the leader says why


def dismiss() -> None:
    if processes() > 1:
        broadcast()
