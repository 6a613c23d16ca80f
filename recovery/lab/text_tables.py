"""Plain data as plain text: the lists and wordings of the lab are written as people write lists."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def items(text: str) -> tuple[str, ...]:
    """Separated by commas."""
    return tuple(" ".join(part.split()) for part in text.split(","))


def wordings(text: str) -> tuple[str, ...]:
    """Separated by slashes; a line break is a space."""
    return tuple(" ".join(text.split()).split(" / "))
