"""What a measurement costs: its seconds, and the tokens that its model was given and wrote."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evals.results import Tokens
from evals.subject import Subject
from recovery.engines import Engine, Generation, Sampling
from recovery.models.students import Student


class Meter:
    """Counts what passes through the engines that it is put over."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self._started = time.perf_counter()

    def over(self, engine: Engine) -> Engine:
        return _Metered(engine, self)

    def spent(self) -> tuple[float, Tokens]:
        """Since it began; the last two fields of a `Result`."""
        return time.perf_counter() - self._started, Tokens(self.read, self.written)


@dataclass(frozen=True)
class _Metered:
    engine: Engine
    meter: Meter

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        written = self.engine.generate(prompts, sampling)
        self.meter.read += sum(map(len, prompts))
        self.meter.written += sum(len(each.tokens) for each in written)
        return written

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.meter.read += sum(map(len, sequences))
        return self.engine.logprobs(sequences)

    def sync(self, student: Student) -> None:
        self.engine.sync(student)


def metered(subject: Subject) -> tuple[Subject, Callable[[], tuple[float, Tokens]]]:
    """The same subject for one measurement, and what that has cost when asked."""
    meter = Meter()
    return Subject(meter.over(subject.engine), subject.chat), meter.spent
