"""Read all documents under a path, or of a data set of the hub: deduplicated, in a fixed order, hashed; and report what
was left out. Files outside of the path are never opened; a data set is streamed row by row. A copy of what was read is
stored by its hash, to resume a run and for the mix of later cycles, whatever becomes of the user's folder."""

import hashlib
import os
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from evals.downloads import is_hub_offline, is_hub_reachable
from pipelines.documents.conversations import is_chat
from pipelines.documents.file_formats import (
    OTHER_FORMAT,
    READERS,
    ROWS,
    Unreadable,
    documents_in,
    files_under,
    row_documents,
    rows_of,
    split_document,
)
from pipelines.log import log
from pipelines.storage import JsonLines
from recovery.errors import RecoverError, first_line, hub_problem

HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?(:(?P<split>\w+))?")

SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 200, 8_192  # of each the beginning, to measure their recall by
PARTLY = " (what could be read is included)"
MAX_LINES = 10  # of files that could not be read
Skipped = list[tuple[Path, str]]  # (file, reason)


class Texts(Sequence[str]):
    """An append-only list of texts without copies, in an unnamed temporary file. Each is read from disk on access."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (deleted with the last reference)
        self.ends = array("Q", [0])
        self.sources = array("Q")  # for each text, the number of the file it came from
        self.characters = 0
        self.copies = 0  # that were left out
        self._keys: set[bytes] = set()  # equal for texts that differ in case and white space alone
        self._hash = hashlib.sha256()

    def __len__(self) -> int:
        return len(self.sources)

    def add(self, text: str, source: int) -> None:
        """Store the text, unless it differs from an earlier one in case and white space at most."""
        normalised = " ".join(text.casefold().split()).encode("utf-8", "replace")
        key = hashlib.sha256(normalised).digest()[:16]
        if key in self._keys:
            self.copies += 1
            return
        self._keys.add(key)
        encoded = text.encode("utf-8", "replace")  # JSON can contain lone surrogates, which UTF-8 cannot encode
        try:
            self.file.write(encoded)
        except OSError as error:
            raise RecoverError(
                f"The documents' text does not fit into {tempfile.gettempdir()} ({error.strerror or error}). "
                "Set TMPDIR to a folder with more space."
            ) from error
        self.ends.append(self.ends[-1] + len(encoded))
        self.sources.append(source)
        self.characters += len(text)
        self._hash.update(hashlib.sha256(encoded).digest())

    def __getitem__(self, index: Any) -> Any:
        number = range(len(self))[index]
        start, end = self.ends[number], self.ends[number + 1]
        self.file.flush()  # os.pread sees none of what is buffered
        return os.pread(self.file.fileno(), end - start, start).decode()

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()


@dataclass
class Corpus:
    path: Path
    texts: Texts
    files: int  # that have at least one document
    skipped: Skipped
    sources: list[str]  # names of the files

    @property
    def hash(self) -> str:
        return self.texts.hash

    @property
    def unread(self) -> int:
        """How many files were skipped as a whole."""
        return sum(not reason.endswith(PARTLY) for _, reason in self.skipped)

    def skipped_lines(self) -> list[str]:
        """What could not be read, then what not to its end, and the files of other formats in one line."""
        root, lines = self.path.resolve(), list[str]()
        for file, reason in sorted(self.skipped, key=lambda entry: entry[1].endswith(PARTLY)):
            verb = "Read a part of" if reason.endswith(PARTLY) else "Skipped"
            name = file.relative_to(root) if root in file.parents else file
            lines += [f"{verb} {name}: {reason.removesuffix(PARTLY)}"] if reason != OTHER_FORMAT else []
        if (more := len(lines) - MAX_LINES) > 0:
            lines[MAX_LINES:] = [f"And {number_of(more, 'more file')}"]
        others = Counter(file.suffix.lower() or "no suffix" for file, reason in self.skipped if reason == OTHER_FORMAT)
        if others:
            suffixes = ", ".join(f"{suffix} {count:,}" for suffix, count in others.most_common(MAX_LINES))
            lines.append(f"Skipped {number_of(others.total(), 'file')} of other formats: {suffixes}")
        return lines

    def source(self, number: int) -> str:
        return self.sources[self.texts.sources[number]]


def number_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def refuse_missing(path: Path) -> None:
    if not path.exists() and not is_hub_id(str(path)):
        raise RecoverError(f"There is no file or folder {path}. Give --docs a folder or a file of documents.")


def read_corpus(path: Path) -> Corpus:
    refuse_missing(path)
    is_local = path.exists()  # else it is a data set of the hub
    texts, sources, skipped, chats = Texts(), list[str](), Skipped(), 0

    def counted(rows: Iterable[Any]) -> Iterator[Any]:
        nonlocal chats
        for row in rows:
            chats += is_chat(row)
            yield row

    for file, reason in files_under(path) if is_local else [(path, "")]:
        name = os.fsencode(file).decode("utf-8", "replace")  # file names can be any bytes
        found = 0
        try:
            if is_local and file.suffix.lower() not in ROWS:
                documents = documents_in(file)
            else:
                documents = row_documents(counted(rows_of(file) if is_local else dataset_rows(str(path))))
            for text in () if reason else documents:
                texts.add(text, len(sources))
                found += 1
        except RecoverError:
            raise
        except Exception as error:  # parsers fail in many ways on broken files
            reason = str(error) if isinstance(error, Unreadable) else f"unreadable: {first_line(error)[:200]}"
        if reason or not found:
            skipped.append((Path(name), (reason or "empty") + PARTLY * (found > 0)))
        if found:
            sources.append(name)
    if not texts:
        _refuse_empty(path, skipped)
    if chats:
        log.warning(
            f"Read as plain text {number_of(chats, 'row')} of conversations in {path}. To learn them as chats, name "
            "their file as --conversations (of check and repair: as --docs)"
        )
    return Corpus(path, texts, len(set(texts.sources)), skipped, sources)


def _refuse_empty(path: Path, skipped: Skipped) -> NoReturn:
    first = sorted(skipped, key=lambda entry: entry[1] == OTHER_FORMAT)[:3]
    reasons = "; ".join(f"{file.name}: {reason}" for file, reason in first)
    reasons = f" ({reasons})" if reasons else ""
    formats = ", ".join(sorted(READERS))
    raise RecoverError(f"There is no readable document in {path}{reasons}. Supported formats are {formats}.")


def is_hub_id(reference: str) -> bool:
    """Whether the reference has the form `org/name`, `org/name@revision` or `org/name:split`."""
    return HUB_ID.fullmatch(reference) is not None


def dataset_rows(reference: str) -> Iterator[dict[str, Any]]:
    import datasets  # type: ignore[import-untyped]

    parts = HUB_ID.fullmatch(reference)
    assert parts is not None
    if not is_hub_offline() and not is_hub_reachable():
        raise RecoverError(
            f"There is no file or folder {reference}, and the hub, where it may be a data set, cannot be reached. "
            "Give a folder or a file."
        )
    try:
        yield from datasets.load_dataset(
            parts["name"], revision=parts["revision"], split=parts["split"] or "train", streaming=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise RecoverError(
            f"There is no file or folder {reference}, and it cannot be read as a data set of the hub "
            + hub_problem(error, "Give a folder or a file.")
        ) from error


@dataclass(frozen=True)
class CorpusSnapshot:
    path: Path
    hash: str
    files: int
    file: Path

    @property
    def texts(self) -> Iterator[str]:
        return (row["text"] for row in JsonLines(self.file))

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield name, hash and size of each document, for the database."""
        for row in JsonLines(self.file):
            text = row["text"].encode()
            yield {"name": row["source"], "hash": hashlib.sha256(text).hexdigest(), "bytes": len(text)}


def save_snapshot(home: Path, corpus: Corpus) -> CorpusSnapshot:
    file = snapshot_file(home, corpus.hash)
    if not file.is_file():
        JsonLines(file).write(
            {"source": corpus.source(number), "text": text} for number, text in enumerate(corpus.texts)
        )
    path = corpus.path.resolve() if corpus.path.exists() else corpus.path  # else it is a hub id
    return CorpusSnapshot(path, corpus.hash, corpus.files, file)


def check_questions_apart(questions: Path, docs: Path) -> None:
    if questions.resolve().is_relative_to(docs.resolve()):
        raise RecoverError(
            f"The questions {questions} lie among the documents of {docs}, so the model would learn the answers from "
            "them. Put them into another folder."
        )


def sample_passages(home: Path, corpus: CorpusSnapshot) -> Path:
    """Write a file of some documents, evenly spaced, and of long ones the beginning. Their recall is measured where
    there are no questions."""
    file = snapshot_file(home, corpus.hash).with_suffix(".sample.jsonl")
    if not file.is_file():
        total = sum(1 for _ in corpus.texts)
        count = min(total, SAMPLE_DOCUMENTS)
        indices = {i * total // count for i in range(count)}
        chosen = (text for i, text in enumerate(corpus.texts) if i in indices)
        JsonLines(file).write({"text": next(split_document([text], SAMPLE_CHARACTERS))} for text in chosen)
    return file


def load_snapshots(home: Path, hashes: Iterable[str]) -> list[CorpusSnapshot]:
    """Those of them that are stored, to read their texts; neither their path nor the number of their files is known."""
    files = ((hash, snapshot_file(home, hash)) for hash in hashes)
    return [CorpusSnapshot(Path(), hash, 0, file) for hash, file in files if file.is_file()]


def snapshot_file(home: Path, hash: str) -> Path:
    return home / "documents" / f"{hash[:32]}.jsonl"
