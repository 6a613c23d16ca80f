"""Drafts of answers: each instruction changes the draft, then the draft is written out as text.

Answers follow their instructions by construction; nothing here checks an answer."""

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Literal

from recovery.lab.chat.answer_sentences import GENERAL, GENRES, LANGUAGES, WITH_WORD
from recovery.lab.chat.topics import Split, nouns, topic

Texts = list[str]
Layout = Literal["plain", "bullets", "stars", "paragraphs", "sections", "two", "json", "constrained"]
Case = Literal["", "upper", "lower"]
SKIP_RATE = 0.15  # share of the possible next sentences that are left out


class OutOfSentencesError(Exception):
    """The instructions demand and forbid so much that the sentences run out (about one draft in 100,000)."""


@dataclass
class Draft:
    rng: Random
    split: Split
    topic: str
    genre: str
    layout: Layout = "plain"
    parts: int = 1
    per_part: int = 1
    count: int = 0  # sentences of a plain answer; 0 means any number
    min_words: int = 0
    language: str = ""
    splitter: str = ""
    first_word: tuple[int, str] | None = None  # a paragraph's number and its first sentence
    inserts: Texts = field(default_factory=list)  # sentences that the answer must contain
    avoid: Texts = field(default_factory=list)  # patterns that no sentence may match
    words: Texts = field(default_factory=list)  # words that the prompt asks for, each used by one instruction only
    highlights: int = 0
    case: Case = ""
    title: str = ""
    postscript: str = ""
    end: str = ""
    quoted: bool = False
    repeat: str = ""

    @classmethod
    def new(cls, rng: Random, split: Split) -> "Draft":
        draft = cls(rng, split, topic(rng, split), rng.choice(list(GENRES)))
        draft.words.append(draft.topic)
        return draft

    def new_words(self, n: int = 1) -> Texts:
        """Draw words that are neither in the topic nor used by another instruction."""
        while True:
            candidates = nouns(self.rng, self.split, n)
            if not any(a in b or b in a for a in candidates for b in " ".join(self.words).split()):
                self.words += candidates
                return candidates

    def insert(self, word: str, times: int = 1) -> None:
        self.inserts += [frame.replace("{k}", word) for frame in self.rng.sample(WITH_WORD, times)]

    def fixed_text(self) -> str:
        """Return all text that the answer contains whichever sentences are drawn."""
        first = self.first_word[1] if self.first_word else ""
        return " ".join([self.topic, *self.inserts, first, self.title, self.postscript, self.end])

    def sentence_bank(self) -> tuple[str, ...]:
        """Return the possible sentences in order; each genre starts at another one and wraps around.

        A fixed order, even with gaps, keeps a small model from repeating itself."""
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
        pool = iter([s for s in self._allowed(self.sentence_bank()) if self.language or self.rng.random() > SKIP_RATE])
        minimum = max(self.count or 2 * (self.parts == 1), self.parts * self.per_part)
        opening = [] if self.language or self.layout == "paragraphs" else self._allowed([GENRES[self.genre]])
        chosen = opening + self.inserts
        while len(chosen) < minimum or len(" ".join(chosen).split()) < self.min_words:
            if (sentence := next(pool, None)) is None:
                raise OutOfSentencesError
            chosen.append(sentence)
        return [_highlight(s) if i < self.highlights else s for i, s in enumerate(chosen)]

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
    """Split sentences into consecutive parts of nearly equal size."""
    bounds = [round(i * len(sentences) / parts) for i in range(parts + 1)]
    return [sentences[a:b] for a, b in pairwise(bounds)]


def _highlight(sentence: str) -> str:
    """Highlight the last two words, without the full stop."""
    *start, first, second = sentence.split(" ")
    return " ".join([*start, f"*{first} {second[:-1]}*{second[-1]}"])
