"""Which items of a task are asked: those of a split, the first so many of them, or blocks until these are enough.

The splits `probe`, measured while training, and `final`, for the verdict, share no item. The hash of an item's key
decides its split, so it does not depend on the order or number of the other items.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from recovery.errors import RecoverError

if TYPE_CHECKING:  # it imports numpy
    from evals.results import Item

Split = Literal["probe", "final", "all"]
RETENTION_ITEMS = 300  # of each task: both together show a loss of 2 % to be below 5 %, if 6 % of the answers differ
PROBE_SHARE = 5  # one item in five is a probe item, which leaves most items for the verdict

T = TypeVar("T")


def split_of(key: str) -> Split:
    """Return "probe" or "final" for an item's key."""
    digest = hashlib.sha256(f"part/{key}".encode("utf-8", "replace")).digest()
    return "probe" if int.from_bytes(digest[:8]) % PROBE_SHARE == 0 else "final"


def select_items(items: Iterable[T], key: Callable[[T], str], split: Split, limit: int | None = None) -> list[T]:
    """Return the first `limit` items of the split, in their order. Raise RecoverError if there are none."""
    in_split = (item for item in items if split == "all" or split_of(key(item)) == split)
    selected = list(islice(in_split, limit))
    if not selected and split != "all":
        raise RecoverError(f"No item is in the split {split!r}. Add more items, or measure on all of them.")
    return selected


def secondary_task_limit(limit: int | None, secondary_limit: int | None) -> int | None:
    """Return the item limit of the tasks beside the instruction prompts and the questions on documents: at most
    `secondary_limit`, or half of a high limit. Without a limit there is no secondary limit."""
    if limit is None or secondary_limit is None:
        return limit
    return min(limit, max(secondary_limit, limit // 2))


def oversampled_count(limit: int, split: Split) -> int:
    """Return how many items to generate so that, almost certainly, `limit` of them are in the split."""
    return {"probe": PROBE_SHARE * (limit + 4 * int(limit**0.5) + 10), "final": 2 * limit + 10, "all": limit}[split]


@dataclass(frozen=True)
class Blocks:
    """How a task is asked, and the items of an earlier attempt, which are not asked again."""

    size: int
    enough: Callable[[list["Item"]], bool]
    earlier: list["Item"] = field(default_factory=list)
    save: Callable[[list["Item"]], None] = lambda items: None  # gets the items of each new block


def ask_in_blocks(
    prompts: Sequence[T], key: Callable[[T], str], ask: Callable[[Sequence[T]], list["Item"]], blocks: Blocks | None
) -> tuple[list["Item"], dict[str, Any]]:
    """Return the items asked, and settings that say of how many; without `blocks` all are asked, in their order."""
    if blocks is None:
        return ask(prompts), {}
    from evals.stats.sequential import look_sizes  # imports numpy, which the command line's help does not need

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
