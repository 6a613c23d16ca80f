"""Texts that say the same: exact copies by hash, near copies by the share of five-word runs that they have in common.

Near copies are found with MinHash: copies agree in at least one of a few short signatures with near certainty, so only
texts that agree in one are compared, and then exactly. Signatures wait on disk; one column of them is read at a time.
"""

import tempfile
from array import array
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipelines.documents.text_store import Spool

Hashes = NDArray[np.uint64]

SAME = 0.9  # of all runs of words that either text has, the share that both have
LEAST_RUNS = 50  # shorter texts are only ever exact copies: in a card or a table row one word makes another fact
DOUBLINGS = 5  # runs are 2⁵ bytes from the start of a word, five or six words
BANDS, ROWS = 12, 5  # texts 85 % alike share no signature once in a thousand times, at 30 % they share one in 34
AT_ONCE = 4096


def runs(text: str) -> Hashes:
    """A hash for each different run of words, whatever the case and the spacing."""
    flat = f" {' '.join(text.casefold().split())}{' ' * 2**DOUBLINGS}".encode("utf-8", "replace")
    letters = np.frombuffer(flat, np.uint8)
    hashed = _dice(256)[letters]
    for doubling in range(DOUBLINGS):
        width = 2**doubling
        hashed = hashed[:-width] * _dice(DOUBLINGS)[doubling] + hashed[width:]
    here, before = letters[1 : len(hashed)], letters[: len(hashed) - 1]
    # Scripts without spaces have a run at every character: their letters begin with these bytes.
    starts = ((before == 32) & (here != 32)) | (here >= 0xE0)
    chosen = hashed[1:][starts]
    return np.unique(chosen ^ (chosen >> np.uint64(29)))


def alike(some: Hashes, others: Hashes) -> float:
    both = len(np.intersect1d(some, others, assume_unique=True))
    return both / max(1, len(some) + len(others) - both)


class Signatures:
    """What every text is recognised by, told one after the other."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (gone when nobody holds it any more)
        self.known = array("Q")  # which texts have one

    def add(self, index: int, text: str) -> None:
        found = runs(text)
        if len(found) >= LEAST_RUNS:
            self.file.write(_signature(found).tobytes())
            self.known.append(index)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(earlier, later) that may be near copies, by the later one."""
        texts = np.array(self.known, dtype=np.int64)
        both = np.concatenate([np.zeros(0, np.int64), *(self._agreeing(band) for band in range(BANDS))])
        for later, earlier in (divmod(int(pair), max(1, len(texts))) for pair in np.unique(both)):
            yield int(texts[earlier]), int(texts[later])

    def _agreeing(self, band: int) -> NDArray[np.int64]:
        """Of the texts with one signature, each with the first of them and with the one before it."""
        column = self._column(band)
        order = np.argsort(column, kind="stable")
        fresh = np.ones(len(order), dtype=bool)
        fresh[1:] = column[order][1:] != column[order][:-1]
        firsts = order[np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))]
        before = np.roll(order, 1)
        return np.concatenate([order * len(order) + firsts, order * len(order) + before])[np.tile(~fresh, 2)]

    def _column(self, band: int) -> Hashes:
        self.file.seek(0)
        column: list[Hashes] = []
        while block := self.file.read(AT_ONCE * BANDS * 8):
            column.append(np.frombuffer(block, np.uint64).reshape(-1, BANDS)[:, band].copy())
        return np.concatenate([np.zeros(0, np.uint64), *column])


def copies(spool: Spool) -> NDArray[np.int64]:
    """Texts that stand exactly so before."""
    halves = np.frombuffer(bytes(spool.digests), np.uint64).reshape(-1, 4)[:, :2]
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    same = (halves[order][1:] == halves[order][:-1]).all(axis=1)
    return order[1:][same]


def near_copies(texts: Sequence[str] | Spool, signatures: Signatures, dropped: set[int]) -> dict[int, int]:
    """Each text that nearly stands before, and where. What is dropped already is no model for others."""
    found: dict[int, int] = {}
    for earlier, later in signatures.pairs():
        gone = {earlier, later} & (dropped | found.keys())
        if not gone and alike(runs(texts[earlier]), runs(texts[later])) >= SAME:
            found[later] = earlier
    return found


def _signature(found: Hashes) -> Hashes:
    least = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(found), AT_ONCE):
        least = np.minimum(least, (found[start : start + AT_ONCE, None] * _dice(BANDS * ROWS)).min(axis=0))
    mixed = np.zeros(BANDS, np.uint64)
    for row in least.reshape(BANDS, ROWS).T:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + row
    return mixed


@cache
def _dice(count: int) -> Hashes:
    """Odd numbers, always the same ones."""
    return np.random.Generator(np.random.PCG64(count)).integers(0, 2**64, count, dtype=np.uint64) | np.uint64(1)
