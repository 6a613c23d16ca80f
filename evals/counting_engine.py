"""An engine that computes nothing: it counts what a measurement would read and write, to estimate how long it takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from evals.subject import Subject
from recovery.engines import Generation, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import Student

SAMPLE_PROMPTS = 8  # token ids of so many prompts are kept


@dataclass(frozen=True)
class Replies:
    """A call that generates replies to `rows` prompts."""

    rows: int
    prompt_tokens: int  # of all prompts together
    max_new_tokens: int


@dataclass(frozen=True)
class Workload:
    """What a measurement, or several, would compute."""

    replies: list[Replies] = field(default_factory=list)
    scored_tokens: int = 0  # tokens of texts that are scored
    scored_texts: int = 0
    prompts: list[list[int]] = field(default_factory=list)  # some prompts of the largest call
    seconds: float = 0.0  # of everything besides the model: reading items, tokenizing, checking replies

    @property
    def items(self) -> int:
        """Replies and scored texts together: what `recovery.progress` reports."""
        return sum(call.rows for call in self.replies) + self.scored_texts

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        return cls(**values | {"replies": [Replies(**call) for call in values["replies"]]})


def count_work(chat: Chat, measure: Callable[[Subject], object]) -> Workload:
    """Run a measurement of a model that replies nothing, and return what a real one would be asked to compute."""
    engine, start_time = _CountingEngine(), time.perf_counter()
    measure(Subject(engine, chat))
    return Workload(
        engine.replies,
        engine.scored_tokens,
        engine.scored_texts,
        engine.prompts,
        time.perf_counter() - start_time,
    )


class _CountingEngine:
    def __init__(self) -> None:
        self.replies: list[Replies] = []
        self.scored_tokens = self.scored_texts = 0
        self.prompts: list[list[int]] = []
        self._largest = 0

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.replies.append(Replies(len(prompts), sum(map(len, prompts)), sampling.max_new_tokens))
        if len(prompts) * sampling.max_new_tokens > self._largest:
            self._largest = len(prompts) * sampling.max_new_tokens
            self.prompts = [list(prompt) for prompt in prompts[:: max(1, len(prompts) // SAMPLE_PROMPTS)]]
            self.prompts = self.prompts[:SAMPLE_PROMPTS]
        return [Generation([], [], True) for _ in prompts]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.scored_texts += len(sequences)
        self.scored_tokens += sum(map(len, sequences))
        return [[-1.0] * (len(tokens) - 1) for tokens in sequences]

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        distinct = {tuple(context) for context in contexts}
        self.scored_texts += len(distinct)
        self.scored_tokens += sum(map(len, distinct)) + sum(map(len, continuations))
        return [[-1.0] * len(continuation) for continuation in continuations]

    def sync(self, student: Student) -> None:
        pass
