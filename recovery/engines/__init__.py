"""Rollout engines behind one small interface: token ids in, token ids and log-probs out. A greedy reply that has run
into a loop can be recognised early, and continued without the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from recovery.models.students import Student

# A loop is a pattern of MIN_PERIOD to MAX_PERIOD tokens, COPIES times in a row at the end; the limits are also vLLM's
# (`repetition_detection`). Shorter patterns, such as a line of dashes, count by their multiples, so a reply must repeat
# itself for at least 128 tokens: after shorter repetitions, models were seen to go on with something else.
MIN_PERIOD, MAX_PERIOD, COPIES = 32, 96, 4
VLLM_LOOPS = {"min_pattern_size": MIN_PERIOD, "max_pattern_size": MAX_PERIOD, "min_count": COPIES}


@dataclass(frozen=True)
class Sampling:
    """How to continue a prompt. The defaults sample from the unmodified distribution, as every loss here assumes."""

    max_new_tokens: int = 256
    temperature: float = 1.0  # 0 is greedy
    seed: int = 0
    end_loops: bool = False  # end a reply soon after it begins to repeat one pattern
    of_turns: bool = False  # a turn goes on behind the separator, as in other programs; else it ends the reply, too
    with_logprobs: bool = True  # without, an engine may leave the log-probs out, which is faster


@dataclass(frozen=True)
class Generation:
    tokens: list[int]  # the sampled tokens, including the EOS
    logprobs: list[float]  # of each of those tokens, at temperature 1; may be empty if not asked for
    finished: bool  # ended with one of the tokens that end a reply


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


def row_seeds(sampling: Sampling, rows: int) -> list[int]:
    """One for each row, for vLLM: a continuation depends neither on the other rows nor on earlier calls."""
    return [Random(f"{sampling.seed}/{row}").getrandbits(62) for row in range(rows)]


def loop_period(tokens: Sequence[int]) -> int | None:
    """Return the length of the pattern that the end of a reply repeats, if it repeats one."""
    for period in range(MIN_PERIOD, MAX_PERIOD + 1):
        length = period * COPIES
        if length > len(tokens):
            return None
        if tokens[-1] == tokens[-1 - period] and tokens[-length:-period] == tokens[period - length :]:
            return period
    return None


def continue_loop(tokens: Sequence[int], length: int) -> list[int]:
    """Return a looping reply as it would be at `length` tokens; any other reply as it is."""
    period = loop_period(tokens)
    if period is None or length <= len(tokens):
        return list(tokens)
    missing = length - len(tokens)
    pattern = list(tokens[-period:])
    return [*tokens, *(pattern * (missing // period + 1))[:missing]]
