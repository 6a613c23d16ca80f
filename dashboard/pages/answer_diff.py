"""Two answers to the same question: what was lost and gained, how surely, and where the texts part."""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dashboard.ui.layout import plain
from db.views import Item

LONGEST_DIFFERENCE = 6_000
"""Characters; beyond that a comparison word by word takes longer than anybody would read."""


class Flips(NamedTuple):
    both: int
    """Items that both were asked and judged on."""
    lost: int
    gained: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test of "as many are lost as gained"."""
        n = self.lost + self.gained
        return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(self.lost, self.gained) + 1)) / 2**n)


def flips(before: Mapping[str, bool | None], after: Mapping[str, bool | None]) -> Flips:
    pairs = [(was, after[key]) for key, was in before.items() if was is not None and after.get(key) is not None]
    lost, gained = sum(bool(was and not now) for was, now in pairs), sum(bool(now and not was) for was, now in pairs)
    return Flips(len(pairs), lost, gained)


def instructions(item: Item) -> list[tuple[str, bool]]:
    """Each instruction of a prompt and whether the answer follows it; empty where the task has no such thing."""
    verdicts = item.verdicts if isinstance(item.verdicts, dict) else {}
    names, followed = verdicts.get("instructions"), verdicts.get("strict")
    if not isinstance(names, list) or not isinstance(followed, list):
        return []
    return [(str(name), bool(yes)) for name, yes in zip(names, followed, strict=False)]


def kinds_of(items: Sequence[Item]) -> list[str]:
    """Each kind and its family: `startend:quotation` and `startend`."""
    kinds = {kind for item in items for kind, _ in instructions(item)}
    return sorted(kinds | {kind.partition(":")[0] for kind in kinds})


def is_kind(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}:")


def marked(text: str, beside: str) -> str:
    """The text as HTML, with the words marked that the other one does not have in that place."""
    if max(len(text), len(beside)) > LONGEST_DIFFERENCE:
        return plain(text[:LONGEST_DIFFERENCE]) + ("…" if len(text) > LONGEST_DIFFERENCE else "")
    mine, theirs = _pieces(text), _pieces(beside)
    told: list[str] = []
    for tag, begin, end, *_ in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        piece = plain("".join(mine[begin:end]))
        told.append(piece if tag == "equal" or not piece else f"<mark>{piece}</mark>")
    return "".join(told)


def matches(items: Sequence[Item | None], kind: str, text: str, show: str) -> bool:
    """Whether a row of answers, the first to be compared with the others, is among those asked for."""
    told = [item for item in items if item is not None]
    if kind and not any(is_kind(name, kind) for item in told for name, _ in instructions(item)):
        return False
    if text and not any(text.lower() in f"{item.prompt}\n{item.answer}".lower() for item in told):
        return False
    first, *others = (item.passed if item else None for item in items)
    wanted: dict[str, Any] = {
        "lost": first is True and False in others,
        "gained": first is False and True in others,
        "flipped": any(other is not None and first is not None and other != first for other in others),
    }
    return bool(wanted.get(show, True))


def _pieces(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)
