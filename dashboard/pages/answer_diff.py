"""Two answers to the same prompt: what was lost and gained, whether by chance, and where the texts differ."""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from db.tables import Item

MAX_DIFF_LENGTH = 6_000  # characters: a word-by-word comparison of longer texts is slow


class Flips(NamedTuple):
    both: int  # items that both checkpoints were graded on
    lost: int
    gained: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test of the hypothesis that as many items are lost as gained."""
        n = self.lost + self.gained
        return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(self.lost, self.gained) + 1)) / 2**n)


def count_flips(before: Mapping[str, bool | None], after: Mapping[str, bool | None]) -> Flips:
    pairs = [(was, after[key]) for key, was in before.items() if was is not None and after.get(key) is not None]
    lost, gained = sum(bool(was and not now) for was, now in pairs), sum(bool(now and not was) for was, now in pairs)
    return Flips(len(pairs), lost, gained)


def instructions(item: Item) -> list[tuple[str, bool]]:
    """Each instruction of a prompt and whether the answer follows it. Empty for other tasks."""
    verdicts = item.verdicts if isinstance(item.verdicts, dict) else {}
    names, followed = verdicts.get("instructions"), verdicts.get("strict")
    if not isinstance(names, list) or not isinstance(followed, list):
        return []
    return [(str(name), bool(yes)) for name, yes in zip(names, followed, strict=False)]


def kinds_of(items: Sequence[Item]) -> list[str]:
    """All kinds of instructions and their families: `startend:quotation` and `startend`."""
    kinds = {kind for item in items for kind, _ in instructions(item)}
    return sorted(kinds | {kind.partition(":")[0] for kind in kinds})


def is_kind(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}:")


def diff_pieces(text: str, other: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether `other` differs from it there."""
    if max(len(text), len(other)) > MAX_DIFF_LENGTH:
        return [(text[:MAX_DIFF_LENGTH] + ("…" if len(text) > MAX_DIFF_LENGTH else ""), False)]
    words = _words(text)
    matcher = difflib.SequenceMatcher(None, words, _words(other), autojunk=False)
    pieces = [("".join(words[start:end]), tag != "equal") for tag, start, end, *_ in matcher.get_opcodes()]
    return [(piece, differs) for piece, differs in pieces if piece]


def matches_filter(items: Sequence[Item | None], kind: str, text: str, show: str) -> bool:
    """Whether a row of answers passes the filters of the page. The first is compared with the others."""
    answered = [item for item in items if item is not None]
    if kind and not any(is_kind(name, kind) for item in answered for name, _ in instructions(item)):
        return False
    if text and not any(text.lower() in f"{item.prompt}\n{item.answer}".lower() for item in answered):
        return False
    first, *others = (item.passed if item else None for item in items)
    matches = {
        "lost": first is True and False in others,
        "gained": first is False and True in others,
        "flipped": any(other is not None and first is not None and other != first for other in others),
    }
    return matches.get(show, True)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)
