"""Documents in passages: as much as one question, or one rewording, is about."""

import re
from collections.abc import Iterator, Sequence
from random import Random

MOST_WORDS, FEWEST_WORDS = 160, 20
IN_TURN = 4


def passages_of(text: str, fewest_words: int = 0) -> Iterator[str]:
    """Whole paragraphs together while they fit; one that is too long by itself, sentence by sentence. Shorter ones than
    asked for are left out."""
    return (passage for passage in _joined(text) if len(passage.split()) >= fewest_words)


def _joined(text: str) -> Iterator[str]:
    waiting: list[str] = []
    for piece in _pieces(text):
        if waiting and _words(waiting) + len(piece.split()) > MOST_WORDS:
            yield "\n\n".join(waiting)
            waiting = []
        waiting.append(piece)
    if waiting:
        yield "\n\n".join(waiting)


def spread(texts: Sequence[str], seed: int = 0) -> Iterator[tuple[int, str]]:
    """(text's number, passage) of all passages worth a question, a few of each text in turn: the first hundred are not
    all from the first file."""
    order = list(range(len(texts)))
    Random(seed).shuffle(order)
    start, more = 0, True
    while more:
        more = False
        for number in order:
            found = list(passages_of(texts[number], FEWEST_WORDS))
            Random(f"{seed}/{number}").shuffle(found)
            more |= len(found) > start + IN_TURN
            yield from ((number, passage) for passage in found[start : start + IN_TURN])
        start += IN_TURN


def _pieces(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        if len(paragraph.split()) <= MOST_WORDS:
            if paragraph.strip():
                yield paragraph.strip()
            continue
        waiting: list[str] = []
        for sentence in re.split(r"(?<=[.!?。！？])\s+", paragraph.strip()):
            for part in _cut(sentence):
                if waiting and _words(waiting) + len(part.split()) > MOST_WORDS:
                    yield " ".join(waiting)
                    waiting = []
                waiting.append(part)
        yield " ".join(waiting)


def _cut(sentence: str) -> Iterator[str]:
    words = sentence.split()
    if len(words) <= MOST_WORDS:
        yield sentence
        return
    for start in range(0, len(words), MOST_WORDS):
        yield " ".join(words[start : start + MOST_WORDS])


def _words(pieces: list[str]) -> int:
    return sum(len(piece.split()) for piece in pieces)
