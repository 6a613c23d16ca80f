"""Questions that the documents answer, made without a model: of a sentence, a name or number is asked for.

A model that reads a fact once can continue the text and still not answer a question about it. One in three questions is
the sentence with a gap; the others, of English sentences, have "which year", "how many" or "who or what" in its place.
"""

import re
from collections.abc import Iterable, Iterator
from random import Random

from evals.suites.training_texts import NAMES, NUMBER, SENTENCE_START, Conversation

GAP = "____"
GAP_EVERY = 3
PER_SENTENCE = 2
JOINS = tuple("-–—’':/")  # beside a name or number that is a part of another
MIN_WORDS, MAX_WORDS = 6, 60  # of a sentence: with less it is hardly clear what is asked for
ENGLISH = re.compile(r"\b(?:the|of|and|in|is|was|has|to)\b")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\bMrs\.)\s+(?=[^a-z\s])")
REFERS_BACK = re.compile(r"(?:He|She|It|They|We|His|Her|Its|Their|This|That|These|Those|There|Here)\b")
OPENING_WORD = re.compile(  # in capitals for the place where they stand, and not for being a name
    r"(?:A|After|All|Although|An|And|As|At|Because|Before|Both|But|By|During|Each|For|From|He|Her|His|How|However|If|In|"
    r"It|Its|Many|Most|No|Not|Of|On|One|Or|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They|This|Those|"
    r"Through|To|Under|Until|We|What|When|Where|Which|While|Who|With|Without|You)\b"
)
COUNTED = re.compile(r" (?!(?:and|as|at|by|for|from|in|of|on|or|that|the|to|when|where|which|while|with)\b)[a-z]")
YEAR = re.compile(r"1\d{3}|20\d{2}")


def gap_questions(texts: Iterable[str]) -> list[Conversation]:
    """Questions with their answers, at most two about each sentence that can be understood without the others."""
    questions = dict[str, str]()
    for sentence in dict.fromkeys(sentence for text in texts for sentence in sentences_of(text)):
        parts = askable(sentence)
        for before, answer, after in Random(sentence).sample(parts, min(PER_SENTENCE, len(parts))):
            with_gap = len(questions) % GAP_EVERY == 0 or not ENGLISH.search(sentence)
            questions.setdefault((fill_in if with_gap else ask)(before, answer, after), answer)
    return [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
        for question, answer in questions.items()
    ]


def sentences_of(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for sentence in SENTENCE_ENDS.split(line.strip()):
            if MIN_WORDS <= len(sentence.split()) <= MAX_WORDS:
                yield sentence


def askable(sentence: str) -> list[tuple[str, str, str]]:
    """What stands before each name or number, itself, and what stands behind it.

    None of a sentence that begins with a pronoun and has no other name."""
    names = [m.span() for m in NAMES.finditer(sentence) if _is_name(sentence, m)]
    numbers = [m.span() for m in NUMBER.finditer(sentence)]
    needs_name = REFERS_BACK.match(sentence) is not None
    parts = []
    for start, end in sorted([*names, *numbers]):
        before, answer, after = sentence[:start], sentence[start:end], sentence[end:]
        is_part_of_word = before[-1:] in JOINS or after[:1] in JOINS
        if len(answer) < 2 or is_part_of_word or answer in before + after:
            continue
        if needs_name and not any(span != (start, end) for span in names):
            continue
        parts.append((before, answer, after))
    return parts


def _is_name(sentence: str, match: re.Match[str]) -> bool:
    """At the start of a sentence only several words with capitals are sure to be one."""
    if not SENTENCE_START.search(sentence[: match.start()]):
        return True
    return match.start() == 0 and " " in match.group() and not OPENING_WORD.match(sentence)


def fill_in(before: str, answer: str, after: str) -> str:
    return f"Fill in the blank: {before}{GAP}{after}"


def ask(before: str, answer: str, after: str) -> str:
    """The sentence as a question: "The tower was built in which year?"."""
    what = _question_words(answer, after)
    question = before + (what if before else what.capitalize()) + after
    return question.rstrip(" .!?;:") + "?"


def _question_words(answer: str, after: str) -> str:
    if not answer[0].isdigit():
        return "who or what"
    if YEAR.fullmatch(answer):
        return "which year"
    return "how many" if COUNTED.match(after) else "what number"
