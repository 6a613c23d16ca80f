"""Tokenize a context and its continuation, where a tokenizer may merge tokens across the boundary."""

from collections.abc import Callable

Encode = Callable[[str], list[int]]


def encode_pair(encode: Encode, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Return the tokens of `context` and the tokens that add `continuation` to it.

    Both are encoded together, because the space between them usually belongs to the continuation's first token.
    The tokens that this shares with the context alone are the context; the continuation always has one at least."""
    together, alone = encode(context + continuation), encode(context.rstrip(" "))
    shared = next((i for i, (a, b) in enumerate(zip(together, alone, strict=False)) if a != b), len(alone))
    shared = min(shared, len(together) - 1)
    return together[:shared], together[shared:]
