"""Parsers for the lab's data tables, which are written as plain text."""


def words(text: str) -> tuple[str, ...]:
    """Split at white space."""
    return tuple(text.split())


def items(text: str) -> tuple[str, ...]:
    """Split at commas."""
    return tuple(" ".join(part.split()) for part in text.split(","))


def wordings(text: str) -> tuple[str, ...]:
    """Split at slashes; a line break counts as a space."""
    return tuple(" ".join(text.split()).split(" / "))
