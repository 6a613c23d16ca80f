"""Texts in pieces of a bounded size, so that one large file takes no more memory than many small ones."""

from collections.abc import Iterable, Iterator

LONGEST = 1 << 18  # characters; a longer document becomes several, parted between paragraphs where there are any


class Unreadable(Exception):
    """Why a file, or the rest of it, cannot be read; never fatal."""


def parted(said: Iterable[str], longest: int = LONGEST) -> Iterator[str]:
    """One document that comes bit by bit, whole where it is not too long."""
    waiting = ""
    for text in said:
        if "\0" in text:
            raise Unreadable("it holds NUL bytes, so it is no text")
        waiting += text
        while len(waiting) > longest:
            cut = _parting(waiting, longest)
            if waiting[:cut].strip():
                yield waiting[:cut].strip()
            waiting = waiting[cut:]
    if waiting.strip():
        yield waiting.strip()


def _parting(text: str, longest: int) -> int:
    for mark in ("\n\n", "\n", " "):
        place = text.rfind(mark, longest // 2, longest)
        if place > 0:
            return place + len(mark)
    return longest
