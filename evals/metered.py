"""What a measurement costs: its seconds, and the tokens that its model was given and wrote."""

import time
from collections.abc import Callable, Sequence

from evals.results import Tokens
from evals.subject import Subject
from recovery.engines import Engine, Generation, Sampling
from recovery.students import Student


class Meter:
    """An engine that counts what passes through it."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.read = self.written = 0
        self._started = time.perf_counter()

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        written = self.engine.generate(prompts, sampling)
        self.read += sum(map(len, prompts))
        self.written += sum(len(each.tokens) for each in written)
        return written

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.read += sum(map(len, sequences))
        return self.engine.logprobs(sequences)

    def sync(self, student: Student) -> None:
        self.engine.sync(student)

    def spent(self) -> tuple[float, Tokens]:
        """Since it began; the last two fields of a `Result`."""
        return time.perf_counter() - self._started, Tokens(self.read, self.written)


def metered(subject: Subject) -> tuple[Subject, Callable[[], tuple[float, Tokens]]]:
    """The same subject for one measurement, and what that has cost when asked."""
    meter = Meter(subject.engine)
    return Subject(meter, subject.chat), meter.spent
