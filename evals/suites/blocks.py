"""Ask the prompts of a task in blocks, and stop when those asked so far are enough."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evals.results import Item
from evals.stats.sequential import look_sizes

T = TypeVar("T")


@dataclass(frozen=True)
class Blocks:
    """How a task is asked, and the items of an earlier attempt, which are not asked again."""

    size: int
    enough: Callable[[list[Item]], bool]
    earlier: list[Item] = field(default_factory=list)
    save: Callable[[list[Item]], None] = lambda items: None  # gets the items of each new block


def ask_in_blocks(
    prompts: Sequence[T], key: Callable[[T], str], ask: Callable[[Sequence[T]], list[Item]], blocks: Blocks | None
) -> tuple[list[Item], dict[str, Any]]:
    """Return the items asked, and settings that say of how many; without `blocks` all are asked, in their order."""
    if blocks is None:
        return ask(prompts), {}
    # Users may have sorted their prompts by kind; those asked first have to be like the others.
    prompts = sorted(prompts, key=lambda prompt: _shuffled_position(key(prompt)))
    sizes = look_sizes(len(prompts), blocks.size)
    items = list(blocks.earlier)
    if [item.key for item in items] != [key(prompt) for prompt in prompts[: len(items)]]:
        items = []  # of other prompts
    for size in sizes:
        if len(items) < size:
            block = ask(prompts[len(items) : size])
            blocks.save(block)
            items += block
        if blocks.enough(items[:size]):
            items = items[:size]
            break
    return items, {"block": blocks.size, "of": len(prompts)} if len(sizes) > 1 else {}


def _shuffled_position(key: str) -> bytes:
    return hashlib.sha256(f"order/{key}".encode("utf-8", "replace")).digest()
