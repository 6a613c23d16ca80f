"""Rollout engines behind one small interface: token ids in, token ids and log-probs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from recovery.models.students import Student


@dataclass(frozen=True)
class Sampling:
    """How to continue a prompt. The defaults are the plain distribution that every loss here assumes."""

    max_new_tokens: int = 256
    temperature: float = 1.0  # 0 is greedy
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    tokens: list[int]  # what was written, its EOS included
    logprobs: list[float]  # of each of those tokens, under the plain distribution
    finished: bool  # ended by itself, at an EOS


class Engine(Protocol):
    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        """One continuation a prompt, in order."""

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        """log p(token | everything before it) for every token but the first."""

    def sync(self, student: Student) -> None:
        """Serve the student's present weights."""
