"""Invented names, unbounded in number and never the same in two worlds."""

from itertools import product
from zlib import crc32

ONSETS = ["b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "th", "v", "z"]
SYLLABLES = [onset + vowel for onset, vowel in product(ONSETS, "aeiou")]
ENDINGS = ["l", "n", "r", "s", "th", "x", "m", "nd"]
BASE = len(SYLLABLES)
WORDS = BASE**3 * len(ENDINGS)
PER_WORLD = 4096


def word(index: int) -> str:
    """The index-th invented word; different indices give different words."""
    extra, place = divmod(index, WORDS)
    place, ending = divmod(place, len(ENDINGS))
    place, c = divmod(place, BASE)
    a, b = divmod(place, BASE)
    for turn in range(3):  # every line can be undone, so the whole is a permutation; and neighbours look unrelated
        a = (a + _mix(b, c, ending, turn)) % BASE
        b = (b + _mix(c, a, ending, turn)) % BASE
        c = (c + _mix(a, b, ending, turn)) % BASE
    syllables = [SYLLABLES[a], SYLLABLES[b], SYLLABLES[c]]
    while extra:  # past eight million words they grow a syllable, and stay distinct
        extra, more = divmod(extra - 1, BASE)
        syllables.append(SYLLABLES[more])
    return ("".join(syllables) + ENDINGS[ending]).capitalize()


def first_name(index: int) -> str:
    """People share first names, as people do; the family name is what tells them apart."""
    one, two = divmod(_mix(index) % BASE**2, BASE)
    return (SYLLABLES[one] + SYLLABLES[two]).capitalize()


def world_word(world: int, i: int) -> str:
    if not 0 <= i < PER_WORLD:
        raise ValueError(f"a world has at most {PER_WORLD} names")
    return word(world * PER_WORLD + i)


def _mix(*numbers: int) -> int:
    return crc32(repr(numbers).encode()) >> 8
