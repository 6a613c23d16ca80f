"""An answer being planned: each instruction leaves its mark on the draft, then the draft is written out.

Whatever an instruction asks for is put there by construction; nothing here ever checks an answer."""

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from recovery.lab.chat.answer_sentences import GENERAL, GENRES, LANGUAGES, WITH_WORD
from recovery.lab.chat.topics import nouns, topic

Texts = list[str]
SKIPPED = 0.15  # of the sentences that could come next


class NothingLeftToSayError(Exception):
    """So much is asked for, and so much forbidden, that the sentences run out: one draft in some hundred thousand."""


@dataclass
class Draft:
    rng: Random
    split: str
    topic: str
    genre: str
    layout: str = "plain"  # bullets, stars, paragraphs, sections, two, json
    parts: int = 1
    per_part: int = 1
    count: int = 0  # sentences of a plain answer; 0 leaves it open
    min_words: int = 0
    language: str = ""
    splitter: str = ""
    first_word: tuple[int, str] | None = None  # which paragraph, the sentence it begins with
    inserts: Texts = field(default_factory=list)  # sentences that have to be in it
    avoid: Texts = field(default_factory=list)  # patterns that no sentence may match
    words: Texts = field(default_factory=list)  # asked-for words: no two instructions share one
    highlights: int = 0
    case: str = ""
    title: str = ""
    postscript: str = ""
    end: str = ""
    quoted: bool = False
    repeat: str = ""

    @classmethod
    def new(cls, rng: Random, split: str) -> "Draft":
        draft = cls(rng, split, topic(rng, split), rng.choice(list(GENRES)))
        draft.words.append(draft.topic)
        return draft

    def fresh(self, n: int = 1) -> Texts:
        """Words that are neither in the topic nor asked for elsewhere."""
        while True:
            found = nouns(self.rng, self.split, n)
            if not any(a in b or b in a for a in found for b in " ".join(self.words).split()):
                self.words += found
                return found

    def insert(self, word: str, times: int = 1) -> None:
        self.inserts += [frame.replace("{k}", word) for frame in self.rng.sample(WITH_WORD, times)]

    def fixed(self) -> str:
        """All text that is certain to be there, whichever sentences are drawn."""
        first = self.first_word[1] if self.first_word else ""
        return " ".join([self.topic, *self.inserts, first, self.title, self.postscript, self.end])

    def bank(self) -> tuple[str, ...]:
        """What there is to say, in the order of saying it: every genre starts somewhere else and goes round.

        An order, even with gaps, is what keeps a small model from saying the same thing again and again."""
        if self.language:
            return LANGUAGES[self.language][1:]
        start = list(GENRES).index(self.genre) * len(GENERAL) // len(GENRES)
        return GENERAL[start:] + GENERAL[:start]

    def write(self) -> str:
        body = self._lay_out(self._sentences())
        if self.title:
            body = f"<<{self.title}>>\n{body}"
        if self.postscript:
            body += f"\n{self.postscript}"
        if self.end:
            body += f"\n{self.end}"
        if self.case:
            body = body.upper() if self.case == "upper" else body.lower()
        if self.quoted:
            body = f'"\n{body}"' if self.layout == "bullets" else f'"{body}"'
        return f"{self.repeat}\n{body}" if self.repeat else body

    def _sentences(self) -> Texts:
        pool = iter([s for s in self._allowed(self.bank()) if self.language or self.rng.random() > SKIPPED])
        wanted = max(self.count or 2 * (self.parts == 1), self.parts * self.per_part)
        opening = [] if self.language or self.layout == "paragraphs" else self._allowed([GENRES[self.genre]])
        chosen = opening + self.inserts
        while len(chosen) < wanted or len(" ".join(chosen).split()) < self.min_words:
            if (sentence := next(pool, None)) is None:
                raise NothingLeftToSayError
            chosen.append(sentence)
        return [_mark(s) if i < self.highlights else s for i, s in enumerate(chosen)]

    def _allowed(self, sentences: Texts | tuple[str, ...]) -> Texts:
        filled = [sentence.replace("{t}", self.topic) for sentence in sentences]
        return [s for s in filled if not any(re.search(pattern, s) for pattern in self.avoid)]

    def _lay_out(self, sentences: Texts) -> str:
        parts = [" ".join(part) for part in _deal(sentences, self.parts)]
        match self.layout:
            case "bullets":
                return "\n".join(f"* {part}" for part in parts)
            case "stars":
                return "\n***\n".join(parts)
            case "two":
                return "\n******\n".join(parts)
            case "sections":
                return "\n".join(f"{self.splitter} {i}\n{part}" for i, part in enumerate(parts, 1))
            case "paragraphs":
                nth, first = self.first_word or (1, "")
                parts[nth - 1] = f"{first} {parts[nth - 1]}"
                return "\n\n".join(parts)
            case "json":
                return json.dumps({"topic": self.topic, "text": parts[0]}, indent=1)
        return parts[0]


def _deal(sentences: Texts, parts: int) -> list[Texts]:
    """Into so many runs, as even as they come."""
    bounds = [round(i * len(sentences) / parts) for i in range(parts + 1)]
    return [sentences[a:b] for a, b in pairwise(bounds)]


def _mark(sentence: str) -> str:
    """Its last two words, full stop excepted."""
    *start, one, two = sentence.split(" ")
    return " ".join([*start, f"*{one} {two[:-1]}*{two[-1]}"])
