"""The cost of a measurement: seconds, tokens read and tokens written by the model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evals.results import Tokens
from evals.subject import Subject
from recovery.engines import Engine, Generation, Sampling
from recovery.models.students import Student


class CostMeter:
    """Counts the tokens that pass through the engines it wraps, and the time since it was created."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self._start_time = time.perf_counter()

    def wrap(self, engine: Engine) -> Engine:
        return _MeteredEngine(engine, self)

    def cost(self) -> tuple[float, Tokens]:
        """Seconds and tokens so far: the last two fields of a `Result`."""
        return time.perf_counter() - self._start_time, Tokens(self.read, self.written)


@dataclass(frozen=True)
class _MeteredEngine:
    engine: Engine
    meter: CostMeter

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        generations = self.engine.generate(prompts, sampling)
        self.meter.read += sum(map(len, prompts))
        self.meter.written += sum(len(generation.tokens) for generation in generations)
        return generations

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.meter.read += sum(map(len, sequences))
        return self.engine.logprobs(sequences)

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        self.meter.read += sum(map(len, {tuple(context) for context in contexts})) + sum(map(len, continuations))
        return self.engine.continuation_logprobs(contexts, continuations)

    def sync(self, student: Student) -> None:
        self.engine.sync(student)


def with_cost_meter(subject: Subject) -> tuple[Subject, Callable[[], tuple[float, Tokens]]]:
    """Return the same subject with a metered engine, and a function that returns the cost so far."""
    meter = CostMeter()
    return replace(subject, engine=meter.wrap(subject.engine)), meter.cost
