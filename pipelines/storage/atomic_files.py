"""Atomic file writes, and files with one JSON value on each line."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file for writing; it appears at `path` only when all of it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as out:
        yield out
    partial.replace(path)


def write_atomic(path: Path, pieces: Iterable[str]) -> None:
    """Write the pieces as one UTF-8 text file, atomically."""
    with open_atomic(path) as out:
        out.writelines(piece.encode("utf-8") for piece in pieces)


@dataclass(frozen=True)
class JsonLines:
    """A file with one JSON value on each line. Iterating reads it line by line."""

    path: Path

    def __iter__(self) -> Iterator[Any]:
        with self.path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def write(self, values: Iterable[Any]) -> None:
        """Write all values, atomically."""
        write_atomic(self.path, map(_line, values))

    def append(self, values: Iterable[Any]) -> None:
        """Write each value as soon as it comes, so that an interruption loses at most one line."""
        with self.path.open("a", encoding="utf-8") as out:
            for value in values:
                print(_line(value), end="", file=out, flush=True)

    def repair(self) -> int:
        """Create the file if it is missing, and cut off an incomplete last line. Return the number of lines."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        complete = content[: content.rfind(b"\n") + 1]  # the cut may be inside a multi-byte character
        if complete != content or not self.path.is_file():
            write_atomic(self.path, [complete.decode("utf-8")])
        return complete.count(b"\n")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
