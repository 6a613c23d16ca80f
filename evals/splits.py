"""Every task's items in two parts that share none: `probe`, looked at while training, and `final`, for the verdict.

An item's own key decides, so the parts stay what they are whatever else is in the data, in whatever order.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, TypeVar

from recovery.errors import RecoverError

Part = Literal["probe", "final", "all"]
PARTS: tuple[Part, ...] = ("probe", "final", "all")
PROBE_SHARE = 5  # one item in five: what training has looked at so often must cost the verdict little

T = TypeVar("T")


def part_of(key: str) -> Part:
    digest = hashlib.sha256(f"part/{key}".encode("utf-8", "replace")).digest()
    return "probe" if int.from_bytes(digest[:8]) % PROBE_SHARE == 0 else "final"


def chosen(items: Iterable[T], key: Callable[[T], str], part: Part, limit: int | None = None) -> list[T]:
    """At most `limit` items of the part, in their order."""
    found = list(islice(_of_part(items, key, part), limit))
    if not found and part != "all":
        raise RecoverError(f"none of the items is in the part {part!r}; bring more items, or measure by all of them")
    return found


def fewer(limit: int | None, beside: int | None) -> int | None:
    """The limit of a task that no verdict is about: `beside` at most, where there is a limit."""
    return min(limit, beside) if limit is not None and beside is not None else limit


def enough(limit: int, part: Part) -> int:
    """How many items to make for `limit` of the part to be among them, all but certainly."""
    return {"probe": PROBE_SHARE * (limit + 4 * int(limit**0.5) + 10), "final": 2 * limit + 10, "all": limit}[part]


def named_part(name: str) -> Part:
    part = next((part for part in PARTS if part == name), None)
    if part is None:
        raise RecoverError(f"there is no part {name!r} of the items; choose from {', '.join(PARTS)}")
    return part


def _of_part(items: Iterable[T], key: Callable[[T], str], part: Part) -> Iterator[T]:
    return (item for item in items if part == "all" or part_of(key(item)) == part)
