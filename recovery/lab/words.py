"""Words: invented names and nouns, and topics. Each is in the training or the held-out split by its spelling.

There is an unlimited number of distinct names, with a separate range for each world. The third split, "natural", has
common nouns alone: for models that were not trained on the lab's invented words."""

import tomllib
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal
from zlib import crc32

TABLES = Path(__file__).parent / "tables"


def table(name: str) -> dict[str, Any]:
    """The phrases and words of a subject, which the generators draw from."""
    return tomllib.loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))


Split = Literal["train", "heldout", "natural"]
SPLITS: tuple[Split, ...] = ("train", "heldout")
TABLE = table("words")
ADJECTIVES: list[str] = TABLE["adjectives"]
NOUNS: list[str] = TABLE["nouns"]
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


def split_of(text: str) -> Split:
    """Assign a text to a split by its content, so no seed can leak it; one in ten is held out."""
    return "heldout" if crc32(text.encode()) % 10 == 0 else "train"


POOLS: dict[Split, list[str]] = {split: [word for word in NOUNS if split_of(word) == split] for split in SPLITS}
POOLS["natural"] = NOUNS


def noun(rng: Random, split: Split) -> str:
    """Return a common noun or an invented one, so that copying a word cannot be replaced by guessing it."""
    return rng.choice(POOLS[split]) if split == "natural" or rng.random() < 0.55 else invented_noun(rng, split)


def invented_noun(rng: Random, split: Split) -> str:
    while True:
        is_of_syllables = rng.random() < 0.4
        word = first_name(rng.randrange(10**9)).lower() + rng.choice(("", *ENDINGS)) if is_of_syllables else _blend(rng)
        if split_of(word) == split:
            return word


def _blend(rng: Random) -> str:
    """Join the beginning of one noun and the end of another: "lantow", "feaket"."""
    start, end = rng.sample(POOLS["train"], 2)
    return start[: rng.randint(2, max(2, len(start) - 2))] + end[-rng.randint(2, max(2, len(end) - 2)) :]


def nouns(rng: Random, split: Split, n: int) -> list[str]:
    """Return distinct nouns, none of which contains another, since their occurrences will be counted."""
    chosen: list[str] = []
    while len(chosen) < n:
        word = noun(rng, split)
        if not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return chosen


def topic(rng: Random, split: Split) -> str:
    return f"the {rng.choice(ADJECTIVES)} {noun(rng, split)}"
