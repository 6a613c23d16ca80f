"""A file is there whole or not at all: it is written beside its place, then renamed."""

from collections.abc import Iterable
from pathlib import Path


def write_atomic(file: Path, pieces: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(file.name + ".partial")
    with aside.open("w", encoding="utf-8") as out:
        out.writelines(pieces)
    aside.replace(file)
