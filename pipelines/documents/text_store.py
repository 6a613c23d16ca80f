"""Texts on disk in the order they are added, and the duplicates among them; in memory are a few numbers for each text.

Exact copies are found by hash, near copies by the share of shingles (runs of about five words) in common: MinHash. Near
copies have at least one of a few band signatures in common with near certainty, so only texts with a common signature
are compared, and then exactly. The signatures are stored on disk, and one band of them is read at a time."""

import hashlib
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recovery.errors import RecoverError

Hashes = NDArray[np.uint64]

MIN_SIMILARITY = 0.9  # of near copies, as Jaccard similarity of their shingles
MIN_SHINGLES = 50  # shorter texts are never near copies: in a card or a table row one word makes another fact
DOUBLINGS = 5  # a shingle is 2⁵ bytes from the start of a word, five or six words
BANDS, ROWS = 12, 5  # texts with similarity 0.85 have no signature in common 1 time in 1000, with 0.3 one in 34
CHUNK = 4096


class Spool:
    """An append-only list of texts in an unnamed temporary file."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (deleted with the last reference)
        self.ends = array("Q", [0])
        self.lengths = array("Q")
        self.sources = array("Q")  # for each text, the number of the file it came from
        self.digests = bytearray()

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

    def __iter__(self) -> Iterator[str]:
        return (self.spool[i] for i in self.indices)

    @property
    def characters(self) -> int:
        return sum(self.spool.lengths[i] for i in self.indices)

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for i in self.indices:
            digest.update(self.spool.digest(i))
        return digest.hexdigest()


def shingles(text: str) -> Hashes:
    """The distinct hashes of the text's shingles; case and white space make no difference."""
    flat = f" {' '.join(text.casefold().split())}{' ' * 2**DOUBLINGS}".encode("utf-8", "replace")
    letters = np.frombuffer(flat, np.uint8)
    hashed = _multipliers(256)[letters]
    for doubling in range(DOUBLINGS):
        width = 2**doubling
        hashed = hashed[:-width] * _multipliers(DOUBLINGS)[doubling] + hashed[width:]
    current, previous = letters[1 : len(hashed)], letters[: len(hashed) - 1]
    # Scripts without spaces have a shingle at every character: their letters begin with these bytes.
    starts = ((previous == 32) & (current != 32)) | (current >= 0xE0)
    chosen = hashed[1:][starts]
    return np.unique(chosen ^ (chosen >> np.uint64(29)))


def similarity(first: Hashes, second: Hashes) -> float:
    """Jaccard similarity of two sets of shingles."""
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / max(1, len(first) + len(second) - common)


class Signatures:
    """MinHash signatures of a sequence of texts, in a temporary file."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (deleted with the last reference)
        self.indices = array("Q")  # of the texts that have a signature

    def add(self, index: int, text: str) -> None:
        hashes = shingles(text)
        if len(hashes) >= MIN_SHINGLES:
            self.file.write(_signature(hashes).tobytes())
            self.indices.append(index)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the candidate pairs (earlier, later), sorted by the later text."""
        texts = np.array(self.indices, dtype=np.int64)
        pairs = np.concatenate([np.zeros(0, np.int64), *(self._pairs_in(band) for band in range(BANDS))])
        for later, earlier in (divmod(int(pair), max(1, len(texts))) for pair in np.unique(pairs)):
            yield int(texts[earlier]), int(texts[later])

    def _pairs_in(self, band: int) -> NDArray[np.int64]:
        """Pair each text that has the same signature as others with the first of them and with the previous one.

        A pair is one number: later * count + earlier."""
        column = self._column(band)
        order = np.argsort(column, kind="stable")
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = column[order][1:] != column[order][:-1]
        firsts = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
        previous = np.roll(order, 1)
        pairs = np.concatenate([order * len(order) + firsts, order * len(order) + previous])
        chosen: NDArray[np.int64] = pairs[np.tile(~is_first, 2)]
        return chosen

    def _column(self, band: int) -> Hashes:
        self.file.seek(0)
        column: list[Hashes] = []
        while block := self.file.read(CHUNK * BANDS * 8):
            column.append(np.frombuffer(block, np.uint64).reshape(-1, BANDS)[:, band].copy())
        return np.concatenate([np.zeros(0, np.uint64), *column])


def exact_copies(spool: Spool) -> list[int]:
    """Indices of the texts that are equal to an earlier one."""
    halves = np.frombuffer(bytes(spool.digests), np.uint64).reshape(-1, 4)[:, :2]
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    is_copy = (halves[order][1:] == halves[order][:-1]).all(axis=1)
    return [int(index) for index in order[1:][is_copy]]


def near_copies(texts: Sequence[str] | Spool, signatures: Signatures, dropped: set[int]) -> dict[int, int]:
    """Map each near copy to the earlier text that it resembles. Texts in `dropped` and copies are not compared."""
    copies: dict[int, int] = {}
    for earlier, later in signatures.pairs():
        skip = {earlier, later} & (dropped | copies.keys())
        if not skip and similarity(shingles(texts[earlier]), shingles(texts[later])) >= MIN_SIMILARITY:
            copies[later] = earlier
    return copies


def _signature(hashes: Hashes) -> Hashes:
    minima = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(hashes), CHUNK):
        minima = np.minimum(minima, (hashes[start : start + CHUNK, None] * _multipliers(BANDS * ROWS)).min(axis=0))
    signature = np.zeros(BANDS, np.uint64)
    for row in minima.reshape(BANDS, ROWS).T:
        signature = signature * np.uint64(0x9E3779B97F4A7C15) + row
    return signature


@cache
def _multipliers(count: int) -> Hashes:
    """Pseudo-random odd numbers, the same in every process."""
    return np.random.Generator(np.random.PCG64(count)).integers(0, 2**64, count, dtype=np.uint64) | np.uint64(1)
