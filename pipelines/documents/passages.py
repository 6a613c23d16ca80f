"""Split documents into passages: the unit that a question is about."""

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from evals.suites.answer_grading import UNSPACED

MAX_WORDS, MIN_WORDS = 160, 20
MAX_WORD = 40  # characters; a longer one counts as several words
PASSAGES_PER_TURN = 4


def passages_of(text: str, min_words: int = 0) -> Iterator[str]:
    """Join whole paragraphs up to MAX_WORDS; split longer paragraphs between sentences. Drop passages of fewer words
    than `min_words`."""
    return (passage for passage in _packed(_pieces(text), "\n\n") if _spaced_words(passage) >= min_words)


def _spaced_words(text: str) -> float:
    """Two characters of a script without spaces are about one word."""
    return sum(max(1.0, len(UNSPACED.findall(word)) / 2) for word in text.split())


def _words(text: str) -> float:
    """How long a text is: as above, but a long word counts as several."""
    return sum(max(_spaced_words(word), len(word) / MAX_WORD) for word in text.split())


def _packed(pieces: Iterable[str], separator: str) -> Iterator[str]:
    """Join pieces up to MAX_WORDS."""
    pending, words = list[str](), 0.0
    for piece in pieces:
        more = _words(piece)
        if pending and words + more > MAX_WORDS:
            yield separator.join(pending)
            pending, words = [], 0.0
        pending.append(piece)
        words += more
    if pending:
        yield separator.join(pending)


def interleaved_passages(texts: Sequence[str], seed: int = 0) -> Iterator[tuple[int, str]]:
    """Yield (index of the text, passage) for all passages of MIN_WORDS, a few of each text in turn.

    So the first passages come from many texts."""
    order = list(range(len(texts)))
    Random(seed).shuffle(order)
    start, more = 0, True
    while more:
        more = False
        for number in order:
            passages = [passage for passage in passages_of(texts[number]) if _words(passage) >= MIN_WORDS]
            Random(f"{seed}/{number}").shuffle(passages)
            more |= len(passages) > start + PASSAGES_PER_TURN
            yield from ((number, passage) for passage in passages[start : start + PASSAGES_PER_TURN])
        start += PASSAGES_PER_TURN


def _pieces(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        if _words(paragraph) <= MAX_WORDS:
            if paragraph.strip():
                yield paragraph.strip()
            continue
        sentences = re.split(r"(?<=[.!?])\s+|(?<=[。！？])\s*", paragraph.strip())
        joined = _packed((part for sentence in sentences for part in _cut(sentence)), " ")
        yield from (re.sub(r"(?<=[。！？]) ", "", passage) for passage in joined)


def _cut(sentence: str) -> Iterator[str]:
    if _words(sentence) <= MAX_WORDS:
        yield from filter(None, [sentence])
        return
    for word in sentence.split():  # they are joined again
        size = max(1, int(len(word) * min(1.0, MAX_WORDS / _words(word))))  # each piece of a longer one fills a passage
        yield from (word[start : start + size] for start in range(0, len(word), size))
