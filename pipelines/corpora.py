"""What was read, kept under its hash whatever becomes of the user's folder: to resume from, to rehearse, to look at."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recovery.errors import RecoverError


class Corpus(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def hash(self) -> str: ...
    @property
    def files(self) -> int: ...
    @property
    def texts(self) -> Iterable[str]: ...


@dataclass(frozen=True)
class Kept:
    """A corpus as it was read once, streamed from where it is kept."""

    path: Path
    hash: str
    files: int
    file: Path

    @property
    def texts(self) -> Iterator[str]:
        with self.file.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def keep(home: Path, corpus: Corpus) -> Kept:
    file = _file(home, corpus.hash)
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".partial")
        with aside.open("w", encoding="utf-8") as lines:
            for text in corpus.texts:
                lines.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        aside.replace(file)
    return Kept(corpus.path, corpus.hash, corpus.files, file)


def kept(home: Path, hash: str, path: Path, files: int) -> Kept | None:
    file = _file(home, hash)
    return Kept(path, hash, files, file) if file.is_file() else None


def must_be_kept(home: Path, hash: str, path: Path, files: int) -> Kept:
    found = kept(home, hash, path, files)
    if found is None:
        raise RecoverError(
            f"the documents from {path} were not kept (keep_documents is false), so this cannot go on from them; "
            "give them again with --docs"
        )
    return found


def _file(home: Path, hash: str) -> Path:
    return home / "documents" / f"{hash[:32]}.jsonl"
