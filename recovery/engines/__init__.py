"""Rollout engines behind one small interface: token ids in, token ids and log-probs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from recovery.models.students import Student


@dataclass(frozen=True)
class Sampling:
    """How to continue a prompt. The defaults sample from the unmodified distribution, as every loss here assumes."""

    max_new_tokens: int = 256
    temperature: float = 1.0  # 0 is greedy
    seed: int = 0
    end_loops: bool = False  # end a reply soon after it begins to repeat one pattern
    with_logprobs: bool = True  # without, an engine may leave the log-probs out, which is faster


@dataclass(frozen=True)
class Generation:
    tokens: list[int]  # the sampled tokens, including the EOS
    logprobs: list[float]  # of each of those tokens, at temperature 1; may be empty if not asked for
    finished: bool  # ended with an EOS


class Engine(Protocol):
    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        """Return one continuation per prompt, in order."""

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        """Return log p(token | all tokens before it) for every token but the first."""

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        """Return the log-probs of each continuation's tokens after its context. Equal contexts are cheap."""

    def sync(self, student: Student) -> None:
        """Serve the student's current weights from now on."""
