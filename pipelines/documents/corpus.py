"""All the documents under a path: each once, in a fixed order, hashed as read; what was left out, and why."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.documents.files import files_in
from pipelines.documents.formats import READERS, documents_in
from pipelines.documents.hub import is_hub_id, rows_of
from pipelines.documents.near_duplicates import Signatures, copies, near_copies
from pipelines.documents.splitting import Unreadable
from pipelines.documents.tabular import documents_of
from pipelines.documents.text_store import Spool, Texts
from recovery.errors import RecoverError

Skipped = list[tuple[Path, str]]


@dataclass
class Corpus:
    path: Path
    texts: Texts  # what is learned
    held_out: Texts  # set aside, never learned
    files: int  # that gave at least one document
    skipped: Skipped
    copies: int
    near_copies: list[tuple[str, str]]  # where the text stood that was left out, and the one it resembles
    sources: list[str]

    @property
    def hash(self) -> str:
        return self.texts.hash

    def source(self, number: int) -> str:
        """Where the text of that number was found."""
        return self.sources[self.texts.spool.sources[self.texts.chosen[number]]]


def read_corpus(path: Path, *, held_out: float = 0.0) -> Corpus:
    """A folder, a file or a hub data set. Files that cannot be read are listed with the reason, never fatal.

    `held_out` is the share of documents set aside. Which ones depends on what they say, not on where they stand: they
    stay aside when documents are added."""
    if not 0 <= held_out < 1:
        raise RecoverError(f"the share of documents held out should be at least 0 and less than 1, not {held_out}")
    reading = _Reading()
    if path.exists():
        for file, reason in files_in(path):
            reading.read(file, iter(()) if reason else documents_in(file), reason)
    elif is_hub_id(str(path)):
        reading.read(path, documents_of(rows_of(str(path))), "")
    else:
        raise RecoverError(f"there is nothing at {path}; give --docs a folder or a file of documents")
    return reading.done(path, held_out)


class _Reading:
    def __init__(self) -> None:
        self.spool, self.signatures = Spool(), Signatures()
        self.sources: list[str] = []
        self.skipped: Skipped = []

    def read(self, file: Path, documents: Iterator[str], reason: str) -> None:
        before = len(self.spool)
        name = os.fsencode(file).decode("utf-8", "replace")  # any bytes can be a file's name
        while not reason:
            try:
                text = next(documents)
            except StopIteration:
                break
            except RecoverError:
                raise
            except Exception as error:  # a parser given a broken file may fail in any way, and that is not our end
                reason = _reason(error)
            else:
                self.signatures.add(len(self.spool), text)
                self.spool.add(text, len(self.sources))
        added = len(self.spool) - before
        if reason or not added:
            kept = f" (its first {added:,} documents are kept)" if added else ""
            self.skipped.append((Path(name), (reason or "empty") + kept))
        if added:
            self.sources.append(name)

    def done(self, path: Path, held_out: float) -> Corpus:
        spool = self.spool
        if not len(spool):
            kinds = ", ".join(sorted(READERS))
            raise RecoverError(f"no readable document in {path}; put files in one of the kinds {kinds} there")
        spool.close_writing()
        same = {int(i) for i in copies(spool)}
        near = near_copies(spool, self.signatures, same)
        kept = [i for i in range(len(spool)) if i not in same and i not in near]
        aside = {i for i in kept if int.from_bytes(spool.digest(i)[:4]) < held_out * 2**32}
        texts = Texts(spool, (i for i in kept if i not in aside))
        if not len(texts):
            raise RecoverError(f"all documents of {path} were held out; hold out less")
        return Corpus(
            path,
            texts,
            Texts(spool, sorted(aside)),
            files=len({spool.sources[i] for i in kept}),
            skipped=self.skipped,
            copies=len(same),
            near_copies=[(self._name(later), self._name(earlier)) for later, earlier in near.items()],
            sources=self.sources,
        )

    def _name(self, text: int) -> str:
        return self.sources[self.spool.sources[text]]


def _reason(error: Exception) -> str:
    if isinstance(error, Unreadable):
        return str(error)
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"unreadable: {said[:200]}"
