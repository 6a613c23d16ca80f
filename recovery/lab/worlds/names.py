"""Invented names: an unlimited number of distinct ones, with a separate range for each world."""

from itertools import product
from zlib import crc32

ONSETS = ["b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "th", "v", "z"]
SYLLABLES = [onset + vowel for onset, vowel in product(ONSETS, "aeiou")]
ENDINGS = ["l", "n", "r", "s", "th", "x", "m", "nd"]
BASE = len(SYLLABLES)
WORDS = BASE**3 * len(ENDINGS)
PER_WORLD = 4096


def word(index: int) -> str:
    """Return the index-th invented word; different indices give different words."""
    extra, rest = divmod(index, WORDS)
    rest, ending = divmod(rest, len(ENDINGS))
    rest, c = divmod(rest, BASE)
    a, b = divmod(rest, BASE)
    for turn in range(3):  # each line is invertible, so this is a permutation; neighbours look unrelated
        a = (a + _mix(b, c, ending, turn)) % BASE
        b = (b + _mix(c, a, ending, turn)) % BASE
        c = (c + _mix(a, b, ending, turn)) % BASE
    syllables = [SYLLABLES[a], SYLLABLES[b], SYLLABLES[c]]
    while extra:  # after eight million words, add a syllable; words stay distinct
        extra, more = divmod(extra - 1, BASE)
        syllables.append(SYLLABLES[more])
    return ("".join(syllables) + ENDINGS[ending]).capitalize()


def first_name(index: int) -> str:
    """Return a first name. First names may repeat; family names are unique."""
    first, second = divmod(_mix(index) % BASE**2, BASE)
    return (SYLLABLES[first] + SYLLABLES[second]).capitalize()


def world_word(world: int, i: int) -> str:
    if not 0 <= i < PER_WORLD:
        raise ValueError(f"A world has at most {PER_WORLD} names.")
    return word(world * PER_WORLD + i)


def _mix(*numbers: int) -> int:
    return crc32(repr(numbers).encode()) >> 8
