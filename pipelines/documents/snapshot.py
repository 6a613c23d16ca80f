"""A copy of every corpus that was read, stored by its hash: to resume a run, and for the mix of later cycles.

It does not depend on the user's folder, which may change or disappear.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.documents.corpus import Corpus
from pipelines.storage import JsonLines
from recovery.errors import RecoverError


@dataclass(frozen=True)
class CorpusSnapshot:
    """A stored corpus, streamed from its file."""

    path: Path
    hash: str
    files: int
    file: Path

    @property
    def texts(self) -> Iterator[str]:
        return (row["text"] for row in self._rows())

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield name, hash and size of each document, for the database."""
        for row in self._rows():
            text = row["text"].encode()
            yield {"name": row["source"], "hash": hashlib.sha256(text).hexdigest(), "bytes": len(text)}

    def _rows(self) -> Iterator[dict[str, Any]]:
        return iter(JsonLines(self.file))


def save_snapshot(home: Path, corpus: Corpus) -> CorpusSnapshot:
    file = snapshot_file(home, corpus.hash)
    if not file.is_file():
        JsonLines(file).write(
            {"source": corpus.source(number), "text": text} for number, text in enumerate(corpus.texts)
        )
    path = corpus.path.resolve() if corpus.path.exists() else corpus.path  # else it is a hub id
    return CorpusSnapshot(path, corpus.hash, corpus.files, file)


def sample_passages(home: Path, corpus: CorpusSnapshot, count: int = 200) -> Path:
    """Write a file of `count` documents, evenly spaced. Their recall is measured where there are no questions."""
    file = snapshot_file(home, corpus.hash).with_suffix(".sample.jsonl")
    return file if file.is_file() else write_passages(file, corpus.texts, sum(1 for _ in corpus.texts), count)


def write_passages(file: Path, texts: Iterable[str], total: int, count: int = 200) -> Path:
    """Write a file of `count` of all the texts, evenly spaced."""
    indices = {i * total // count for i in range(count)} if total > count else set(range(total))
    JsonLines(file).write({"text": text} for i, text in enumerate(texts) if i in indices)
    return file


def load_snapshot(home: Path, hash: str, path: Path, files: int) -> CorpusSnapshot | None:
    file = snapshot_file(home, hash)
    return CorpusSnapshot(path, hash, files, file) if file.is_file() else None


def require_snapshot(home: Path, hash: str, path: Path, files: int) -> CorpusSnapshot:
    snapshot = load_snapshot(home, hash, path, files)
    if snapshot is None:
        raise RecoverError(
            f"There is no stored copy of the documents from {path} (keep_documents is false), so this cannot continue. "
            "Give them again with --docs."
        )
    return snapshot


def snapshot_file(home: Path, hash: str) -> Path:
    return home / "documents" / f"{hash[:32]}.jsonl"
