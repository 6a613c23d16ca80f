"""The parts of a stage's work, and the seconds that each takes at measured rates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evals.counting_engine import Workload
from pipelines.machine.calibration import Rates

BATCH = 256  # rows that an engine generates at once
REPLY, PROMPT, TEXT = "reply", "prompt", "text"  # kinds of generated text, which differ in length


class Work(Protocol):
    def seconds(self, rates: Rates) -> float: ...


@dataclass(frozen=True)
class Loading:
    """Loading models, and starting the engine of one."""

    models: int = 1

    def seconds(self, rates: Rates) -> float:
        return self.models * rates.load + rates.open_engine


@dataclass(frozen=True)
class Training:
    """Optimiser steps; the tokens are those of one step."""

    steps: float
    label_tokens: float
    taught_tokens: float = 0.0  # by a teacher's distribution

    def seconds(self, rates: Rates) -> float:
        tokens = self.label_tokens * rates.label_token + self.taught_tokens * rates.taught_token
        return self.steps * (rates.step + tokens)


@dataclass(frozen=True)
class Generating:
    """Replies of one kind to `rows` prompts; `calls` times the same."""

    rows: int
    prompt_tokens: float  # of all prompts, equal ones once
    max_new_tokens: int
    kind: str = REPLY
    calls: float = 1.0

    def seconds(self, rates: Rates) -> float:
        end = rates.ends.get(self.kind, rates.ends.get(REPLY, 1 / self.max_new_tokens))
        sizes = [BATCH] * (self.rows // BATCH) + [self.rows % BATCH] * (self.rows % BATCH > 0)
        passes = sum(longest_reply(size, end, self.max_new_tokens) for size in sizes)
        written = self.rows * mean_length(end, self.max_new_tokens)
        read = self.prompt_tokens * rates.scored_token
        return self.calls * (passes * rates.decode_pass + written * rates.written_token + read)


@dataclass(frozen=True)
class Scoring:
    tokens: float

    def seconds(self, rates: Rates) -> float:
        return self.tokens * rates.scored_token


@dataclass(frozen=True)
class Measuring:
    """A measurement of one checkpoint; `times` the same, as probes are."""

    workload: Workload
    times: float = 1.0

    def seconds(self, rates: Rates) -> float:
        replies = [Generating(r.rows, r.prompt_tokens, r.max_new_tokens).seconds(rates) for r in self.workload.replies]
        scored = self.workload.scored_tokens * rates.scored_token
        return self.times * (sum(replies) + scored + self.workload.seconds)


@dataclass(frozen=True)
class StageWork:
    """A stage of a job by the key that `StageClock` knows it by."""

    key: str
    name: str
    parts: Sequence[Work]

    def seconds(self, rates: Rates) -> float:
        return sum(part.seconds(rates) for part in self.parts)

    @property
    def generates(self) -> bool:
        return any(isinstance(part, Generating | Measuring) for part in self.parts)


def mean_length(end: float, limit: int) -> float:
    """Of replies that end at each token with this chance, and at the limit."""
    return (1 - (1 - end) ** limit) / end if end > 0 else float(limit)


def longest_reply(rows: int, end: float, limit: int) -> float:
    """The expected length of the longest of so many replies."""
    if not 0 < end < 1 or rows < 1:
        return float(limit) if end <= 0 else 1.0
    return min(float(limit), (math.log(rows) + 0.5772) / -math.log(1 - end) + 0.5)
