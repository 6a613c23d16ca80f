"""What was read, kept under its hash whatever becomes of the user's folder: to resume from, to rehearse, to look at."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.files import write_atomic
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
    def source(self, number: int) -> str: ...


@dataclass(frozen=True)
class CorpusSnapshot:
    """A corpus as it was read once, streamed from where it is kept."""

    path: Path
    hash: str
    files: int
    file: Path

    @property
    def texts(self) -> Iterator[str]:
        return (row["text"] for row in self._rows())

    def documents(self) -> Iterator[dict[str, Any]]:
        """What the record keeps of each: where it was found, what it says (by its hash), and how long it is."""
        for row in self._rows():
            text = row["text"].encode()
            yield {"name": row["source"], "hash": hashlib.sha256(text).hexdigest(), "bytes": len(text)}

    def _rows(self) -> Iterator[dict[str, Any]]:
        with self.file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def save_snapshot(home: Path, corpus: Corpus) -> CorpusSnapshot:
    file = _file(home, corpus.hash)
    if not file.is_file():
        rows = ({"source": corpus.source(number), "text": text} for number, text in enumerate(corpus.texts))
        write_atomic(file, map(_line, rows))
    return CorpusSnapshot(corpus.path, corpus.hash, corpus.files, file)


def sample_passages(home: Path, corpus: CorpusSnapshot, count: int = 200) -> Path:
    """Some of the documents, from all over: where nobody brings questions, what is known of these is measured."""
    file = _file(home, corpus.hash).with_suffix(".sample.jsonl")
    if not file.is_file():
        total = sum(1 for _ in corpus.texts)
        wanted = {i * total // count for i in range(count)} if total > count else set(range(total))
        write_atomic(file, (_line({"text": text}) for i, text in enumerate(corpus.texts) if i in wanted))
    return file


def load_snapshot(home: Path, hash: str, path: Path, files: int) -> CorpusSnapshot | None:
    file = _file(home, hash)
    return CorpusSnapshot(path, hash, files, file) if file.is_file() else None


def require_snapshot(home: Path, hash: str, path: Path, files: int) -> CorpusSnapshot:
    found = load_snapshot(home, hash, path, files)
    if found is None:
        raise RecoverError(
            f"the documents from {path} were not kept (keep_documents is false), so this cannot go on from them; "
            "give them again with --docs"
        )
    return found


def delete_snapshot(home: Path, hash: str) -> None:
    _file(home, hash).unlink(missing_ok=True)


def _line(row: dict[str, str]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _file(home: Path, hash: str) -> Path:
    return home / "documents" / f"{hash[:32]}.jsonl"
