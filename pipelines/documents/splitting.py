"""Split long texts into documents of bounded size, so that one large file takes no more memory than small ones."""

from collections.abc import Iterable, Iterator

MAX_CHARACTERS = 1 << 18  # of a document; a longer one becomes several, split between paragraphs if it has any


class Unreadable(Exception):
    """A file, or the rest of it, cannot be read: it is skipped, and the message is the reason that is reported."""


def split_document(pieces: Iterable[str], max_characters: int = MAX_CHARACTERS) -> Iterator[str]:
    """Join the pieces of one document; yield it whole, or in parts of at most `max_characters`."""
    pending = ""
    for text in pieces:
        if "\0" in text:
            raise Unreadable("not text: it contains NUL bytes")
        pending += text
        while len(pending) > max_characters:
            cut = _cut_position(pending, max_characters)
            if pending[:cut].strip():
                yield pending[:cut].strip()
            pending = pending[cut:]
    if pending.strip():
        yield pending.strip()


def _cut_position(text: str, max_characters: int) -> int:
    for separator in ("\n\n", "\n", " "):
        position = text.rfind(separator, max_characters // 2, max_characters)
        if position > 0:
            return position + len(separator)
    return max_characters
