"""Greedy replies that have run into a loop: recognised early, and continued without the model.

The limits are also vLLM's (`repetition_detection`): a pattern of `MIN_PERIOD` to `MAX_PERIOD` tokens, `COPIES` times
in a row at the end. Shorter patterns, such as a line of dashes, count by their multiples, so a reply must repeat itself
for at least 128 tokens: after shorter repetitions, models were seen to go on with something else.
"""

from collections.abc import Sequence

MIN_PERIOD, MAX_PERIOD, COPIES = 32, 96, 4


def loop_period(tokens: Sequence[int]) -> int | None:
    """Return the length of the pattern that the end of a reply repeats, if it repeats one."""
    for period in range(MIN_PERIOD, MAX_PERIOD + 1):
        length = period * COPIES
        if length > len(tokens):
            return None
        if tokens[-1] == tokens[-1 - period] and _repeats(tokens[-length:], period):
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


def _repeats(tokens: Sequence[int], period: int) -> bool:
    return list(tokens[:-period]) == list(tokens[period:])
