"""Texts on disk in the order they are added, and the copies among them; in memory are a few numbers for each text."""

import hashlib
import os
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recovery.errors import RecoverError


class Spool:
    """An append-only list of texts in an unnamed temporary file."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (deleted with the last reference)
        self.ends = array("Q", [0])
        self.lengths = array("Q")
        self.sources = array("Q")  # for each text, the number of the file it came from
        self.digests = bytearray()
        self.keys = bytearray()  # equal for texts that differ in case and white space alone

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, text: str, source: int) -> None:
        encoded = text.encode("utf-8", "replace")  # JSON can contain lone surrogates, which UTF-8 cannot encode
        try:
            self.file.write(encoded)
        except OSError as error:
            raise RecoverError(
                f"The documents' text does not fit into {tempfile.gettempdir()} ({error.strerror or error}). "
                "Set TMPDIR to a folder with more space."
            ) from error
        self.ends.append(self.ends[-1] + len(encoded))
        self.lengths.append(len(text))
        self.sources.append(source)
        self.digests += hashlib.sha256(encoded).digest()
        normalised = " ".join(text.casefold().split()).encode("utf-8", "replace")
        self.keys += hashlib.sha256(normalised).digest()[:16]

    def flush(self) -> None:
        self.file.flush()

    def __getitem__(self, index: int) -> str:
        start = self.ends[index]
        return os.pread(self.file.fileno(), self.ends[index + 1] - start, start).decode()

    def digest(self, index: int) -> bytes:
        return bytes(self.digests[32 * index : 32 * index + 32])


class Texts(Sequence[str]):
    """A selection of the texts of a spool, in order. Each text is read from disk on access."""

    def __init__(self, spool: Spool, indices: Iterable[int]):
        self.spool, self.indices = spool, array("Q", indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Texts(self.spool, self.indices[index])
        return self.spool[self.indices[index]]

    @property
    def characters(self) -> int:
        return sum(self.spool.lengths[i] for i in self.indices)

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for i in self.indices:
            digest.update(self.spool.digest(i))
        return digest.hexdigest()


def copies(spool: Spool) -> list[int]:
    """Indices of the texts that differ from an earlier one in case and white space at most."""
    halves = np.frombuffer(bytes(spool.keys), np.uint64).reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    is_copy = (halves[order][1:] == halves[order][:-1]).all(axis=1)
    return [int(index) for index in order[1:][is_copy]]
