"""Texts on disk in the order they are added, without copies; in memory are a few numbers for each text."""

import hashlib
import os
import tempfile
from array import array
from collections.abc import Sequence
from typing import Any

from recovery.errors import RecoverError


class Texts(Sequence[str]):
    """An append-only list of texts in an unnamed temporary file. Each text is read from disk on access."""

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

    def flush(self) -> None:
        self.file.flush()

    def __getitem__(self, index: Any) -> Any:
        number = range(len(self))[index]
        start, end = self.ends[number], self.ends[number + 1]
        return os.pread(self.file.fileno(), end - start, start).decode()

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
