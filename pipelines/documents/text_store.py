"""Texts on disk, in the order they came: as much memory as a few numbers for each of them."""

import hashlib
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from recovery.errors import RecoverError


class Spool:
    """An unnamed file in the folder for temporary files."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (gone when nobody holds it any more)
        self.ends = array("Q", [0])
        self.lengths = array("Q")
        self.sources = array("Q")  # the number of the file each text came from
        self.digests = bytearray()

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, text: str, source: int) -> None:
        encoded = text.encode("utf-8", "replace")  # JSON may carry half a character, which no file can
        try:
            self.file.write(encoded)
        except OSError as error:
            raise RecoverError(
                f"the documents' text does not fit into {tempfile.gettempdir()} ({error.strerror or error}); "
                "set TMPDIR to a folder with room for all of it"
            ) from error
        self.ends.append(self.ends[-1] + len(encoded))
        self.lengths.append(len(text))
        self.sources.append(source)
        self.digests += hashlib.sha256(encoded).digest()

    def close_writing(self) -> None:
        self.file.flush()

    def __getitem__(self, index: int) -> str:
        start = self.ends[index]
        return os.pread(self.file.fileno(), self.ends[index + 1] - start, start).decode()

    def digest(self, index: int) -> bytes:
        return bytes(self.digests[32 * index : 32 * index + 32])


class Texts(Sequence[str]):
    """Some of the texts of a spool, in order, each read when it is asked for."""

    def __init__(self, spool: Spool, chosen: Iterable[int]):
        self.spool, self.chosen = spool, array("Q", chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Texts(self.spool, self.chosen[index])
        return self.spool[self.chosen[index]]

    def __iter__(self) -> Iterator[str]:
        return (self.spool[i] for i in self.chosen)

    @property
    def characters(self) -> int:
        return sum(self.spool.lengths[i] for i in self.chosen)

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for i in self.chosen:
            digest.update(self.spool.digest(i))
        return digest.hexdigest()
