"""Drafts of answers: each of IFEval's kinds of instruction changes the draft, which is then written out as text.

Answers follow their instructions by construction; nothing here checks an answer. A kind returns its arguments under
IFEval's names. Kinds are applied in the order of `KINDS`: a later one can read what the answer will certainly contain.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, Literal

from recovery.lab.words import ADJECTIVES, Split, noun, nouns, table, topic

Texts = list[str]
Kwargs = dict[str, Any]
Layout = Literal["plain", "bullets", "stars", "paragraphs", "sections", "two", "json", "constrained"]
Case = Literal["", "upper", "lower"]
SENTENCES = table("answers")
WORD_COUNTS = (20, 30, 40, 50, 60, 80, 100, 120, 150, 200)
STOP_WORDS = {"there", "their", "that", "what", "with", "than", "them", "those", "from", "into", "this", "will"}
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
        draft = cls(rng, split, topic(rng, split), rng.choice(list(SENTENCES["genres"])))
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
        self.inserts += [frame.replace("{k}", word) for frame in self.rng.sample(SENTENCES["with_word"], times)]

    def fixed_text(self) -> str:
        """Return all text that the answer contains whichever sentences are drawn."""
        first = self.first_word[1] if self.first_word else ""
        return " ".join([self.topic, *self.inserts, first, self.title, self.postscript, self.end])

    def sentence_bank(self) -> Texts:
        """Return the possible sentences in order; each genre starts at another one and wraps around.

        A fixed order, even with gaps, keeps a small model from repeating itself."""
        if self.language:
            return SENTENCES["foreign"][self.language]
        start = list(SENTENCES["genres"]).index(self.genre) * len(SENTENCES["general"]) // len(SENTENCES["genres"])
        return SENTENCES["general"][start:] + SENTENCES["general"][:start]

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
        opening = [] if self.language or self.layout == "paragraphs" else [SENTENCES["genres"][self.genre]]
        chosen = self._allowed(opening) + self.inserts
        while len(chosen) < minimum or len(" ".join(chosen).split()) < self.min_words:
            if (sentence := next(pool, None)) is None:
                raise OutOfSentencesError
            chosen.append(sentence)
        return [_highlight(s) if i < self.highlights else s for i, s in enumerate(chosen)]

    def _allowed(self, sentences: Texts) -> Texts:
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
    bounds = [round(i * len(sentences) / parts) for i in range(parts + 1)]
    return [sentences[a:b] for a, b in pairwise(bounds)]


def _highlight(sentence: str) -> str:
    """Highlight the last two words, without the full stop."""
    *start, first, second = sentence.split(" ")
    return " ".join([*start, f"*{first} {second[:-1]}*{second[-1]}"])


def _common(texts: Texts) -> Texts:
    return sorted({word for text in texts for word in re.findall(r"[a-z]{4,}", text.lower())} - STOP_WORDS)


COMMON = _common(SENTENCES["general"])


def bullets(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "bullets", draft.rng.randint(2, 6)
    return {"num_bullets": draft.parts}


def paragraphs(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "stars", draft.rng.randint(2, 5)
    return {"num_paragraphs": draft.parts}


def nth_paragraph(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "paragraphs", draft.rng.randint(2, 4)
    nth, (word,) = draft.rng.randint(1, draft.parts), draft.new_words()
    draft.first_word = nth, draft.rng.choice(SENTENCES["first_word"]).replace("{k}", word.capitalize())
    return {"num_paragraphs": draft.parts, "nth_paragraph": nth, "first_word": word}


def sections(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "sections", draft.rng.randint(2, 5)
    draft.splitter = draft.rng.choice(SENTENCES["splitters"])
    return {"section_spliter": draft.splitter, "num_sections": draft.parts}


def with_fields(**fields: Any) -> Callable[[Draft], Kwargs]:
    """A kind without arguments, which only sets these fields of the draft."""

    def kind(draft: Draft) -> Kwargs:
        vars(draft).update(fields)
        return {}

    return kind


def language(draft: Draft) -> Kwargs:
    draft.language = draft.rng.choice(list(SENTENCES["languages"]))
    draft.per_part, draft.count = 1, draft.rng.randint(2, 4) if draft.layout == "plain" else 0
    return {"language": draft.language}


def existence(draft: Draft) -> Kwargs:
    words = draft.new_words(draft.rng.randint(1, 3))
    for word in words:
        draft.insert(word)
    return {"keywords": words}


def frequency(draft: Draft) -> Kwargs:
    (word,), n = draft.new_words(), draft.rng.randint(2, 4)
    at_least = draft.rng.random() < 0.75
    draft.insert(word, n if at_least else draft.rng.randint(0, 1))
    draft.avoid.append(re.escape(word))
    return {"keyword": word, "frequency": n, "relation": _relation(at_least)}


def placeholders(draft: Draft) -> Kwargs:
    n = draft.rng.randint(1, 4)
    draft.inserts += draft.rng.sample(SENTENCES["placeholders"], n)
    return {"num_placeholders": n}


def capital_words(draft: Draft) -> Kwargs:
    at_least, n = draft.rng.random() < 0.8, draft.rng.randint(1, 5)
    if at_least:
        capitals = draft.rng.sample(SENTENCES["capitals"], 2 * math.ceil(n / 2))
        draft.inserts += [
            draft.rng.choice(SENTENCES["shouts"]).format(a=a, b=b)
            for a, b in zip(capitals[::2], capitals[1::2], strict=True)
        ]
    else:
        draft.avoid.append(r"\b[A-Z]+\b")
        n += 3  # "P.S." and similar count, too
    return {"capital_frequency": n, "capital_relation": _relation(at_least)}


def postscript(draft: Draft) -> Kwargs:
    marker = draft.rng.choice(("P.S.", "P.P.S"))
    draft.postscript = f"{marker.rstrip('.')}. {draft.rng.choice(SENTENCES['postscripts'])}"
    return {"postscript_marker": marker}


def title(draft: Draft) -> Kwargs:
    draft.title = draft.rng.choice(("{t}", "{t}", "All about {t}", "On {t}")).replace("{t}", draft.topic)
    if draft.language:
        draft.title = SENTENCES["foreign"][draft.language][0].rstrip(".")
    return {}


def end_phrase(draft: Draft) -> Kwargs:
    phrase = draft.rng.choice(SENTENCES["end_phrases"])
    draft.end = phrase.format(n=noun(draft.rng, draft.split), a=draft.rng.choice(ADJECTIVES))
    return {"end_phrase": draft.end}


def highlights(draft: Draft) -> Kwargs:
    draft.highlights = draft.rng.randint(1, 4)
    draft.count = max(draft.count, draft.highlights + 1)
    return {"num_highlights": draft.highlights}


def letter_frequency(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.75
    if at_least:
        letter = draft.rng.choice(list(SENTENCES["letters"]))
        n = draft.rng.randint(2, SENTENCES["letters"][letter].lower().count(letter))
        draft.inserts.append(SENTENCES["letters"][letter])
    else:
        letter = draft.rng.choice("jqxz")
        n = 2 * draft.fixed_text().lower().count(letter) + draft.rng.randint(2, 4)
        draft.avoid.append(f"(?i){letter}")
    return {"letter": letter, "let_frequency": n, "let_relation": _relation(at_least)}


def forbidden_words(draft: Draft) -> Kwargs:
    fixed = draft.fixed_text().lower()
    near = _common(draft.sentence_bank()[:7]) if draft.rng.random() < 0.6 else COMMON  # words it would use
    words = [word for word in near if not re.search(rf"\b{word}\b", fixed)]
    words = draft.rng.sample(words, draft.rng.randint(1, 3))
    draft.avoid += [rf"(?i)\b{word}\b" for word in words]
    return {"forbidden_words": words}


def number_sentences(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.6
    if at_least:
        n = draft.rng.randint(2, 8)
        draft.count = max(n, len(draft.inserts)) + 1
    else:
        n = len(draft.inserts) + draft.rng.randint(3, 6)
        draft.count = max(1, n - draft.rng.randint(2, 3))
        n += bool(draft.postscript) * 2 + bool(draft.end)  # some of what follows the body may be counted
    return {"num_sentences": n, "relation": _relation(at_least)}


def number_words(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.65
    if at_least:
        n = draft.rng.choice(WORD_COUNTS)
        draft.min_words = math.ceil(n * 1.2) + 4
    else:
        sentence_count = len(draft.inserts) + max(draft.parts, draft.count, 2) + 2
        n = 10 * (sentence_count + len(draft.fixed_text().split()) // 10 + draft.rng.randint(1, 3))
    return {"num_words": n, "relation": _relation(at_least)}


def upper_case(draft: Draft) -> Kwargs:
    draft.case = "upper"
    draft.min_words = max(draft.min_words, 44)  # in shorter texts, language detection is unreliable
    return {}


def lower_case(draft: Draft) -> Kwargs:
    draft.case, draft.min_words = "lower", max(draft.min_words, 22)
    return {}


def no_comma(draft: Draft) -> Kwargs:
    draft.avoid.append(",")
    return {}


def repeat_prompt(draft: Draft) -> Kwargs:
    return {"prompt_to_repeat": ""}  # filled in once the prompt is complete


def _relation(at_least: bool) -> str:
    return "at least" if at_least else "less than"


REPEAT = "combination:repeat_prompt"
CONSTRAINED = "detectable_format:constrained_response"
KINDS: dict[str, Callable[[Draft], Kwargs]] = {
    "detectable_format:number_bullet_lists": bullets,
    "length_constraints:number_paragraphs": paragraphs,
    "length_constraints:nth_paragraph_first_word": nth_paragraph,
    "detectable_format:multiple_sections": sections,
    "combination:two_responses": with_fields(layout="two", parts=2),
    "detectable_format:json_format": with_fields(layout="json"),
    CONSTRAINED: with_fields(layout="constrained"),
    "language:response_language": language,
    "keywords:existence": existence,
    "keywords:frequency": frequency,
    "detectable_content:number_placeholders": placeholders,
    "change_case:capital_word_frequency": capital_words,
    "detectable_content:postscript": postscript,
    "detectable_format:title": title,
    "startend:end_checker": end_phrase,
    "detectable_format:number_highlighted_sections": highlights,
    "keywords:letter_frequency": letter_frequency,
    "keywords:forbidden_words": forbidden_words,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_words": number_words,
    "change_case:english_capital": upper_case,
    "change_case:english_lowercase": lower_case,
    "punctuation:no_comma": no_comma,
    "startend:quotation": with_fields(quoted=True),
    REPEAT: repeat_prompt,
}
