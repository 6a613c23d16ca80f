"""How much a text repeats itself: in a loop, a teacher agrees with the student, so a falling KL does not show it."""

from collections.abc import Sequence

LENGTH = 8  # tokens: ordinary text repeats shorter pieces, such as a name or the start of a list's items


def repetition(tokens: Sequence[int], length: int = LENGTH) -> float:
    """Return the share of a text's pieces of `length` tokens that occurred in it before: 0 for a short text."""
    pieces = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
    return 1 - len(set(pieces)) / len(pieces) if pieces else 0.0
