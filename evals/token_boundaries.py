"""Cutting a text into tokens at a place where a tokenizer would not."""

from collections.abc import Callable

Encode = Callable[[str], list[int]]


def cut(encode: Encode, before: str, after: str) -> tuple[list[int], list[int]]:
    """The tokens of `before` and those that add `after` to it.

    Encoded together, for the space between is mostly a part of the second's first token; what both have in common
    is kept, and the second always holds one token at least."""
    together, alone = encode(before + after), encode(before.rstrip(" "))
    same = next((i for i, (a, b) in enumerate(zip(together, alone, strict=False)) if a != b), len(alone))
    same = min(same, len(together) - 1)
    return together[:same], together[same:]
