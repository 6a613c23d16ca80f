"""Filters for sets of prompts: length, repetition, garbled characters, language, duplicates; and counts by kind."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipelines.documents.text_store import Signatures, near_copies

MIN_WORDS, MAX_WORDS = 2, 1_000
MIN_CHARACTERS = 4  # instead of MIN_WORDS, in scripts without spaces between words
REPETITION_WORDS = 20  # texts shorter than this are not checked for repetition
GARBLED = re.compile(r"[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]")
SPACELESS = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")

QUESTION_STARTS = re.compile(
    r"(who|whom|whose|what|which|where|when|why|how|is|are|was|were|do|does|did|has|have|should|am)\b", re.IGNORECASE
)
INSTRUCTION_STARTS = re.compile(
    r"(please\b|(can|could|would|will) you\b|(i want|i need|i would like|i'd like) you\b)", re.IGNORECASE
)
CHAT_STARTS = re.compile(
    r"(hi|hello|hey|thanks|thank you|good (morning|evening|afternoon|night)|yes|no|ok|okay|sorry|bye|i|i'm|i've|my|we|"
    r"it|that|this|you|he|she|they|there)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FilteredPrompts:
    prompts: list[str]
    dropped: Counter[str]  # by reason


def filter_prompts(texts: Iterable[str], language: str | None = None) -> FilteredPrompts:
    """Drop prompts that are unsuitable or duplicates. `language` is a code such as "en"; None accepts all."""
    accepted: dict[str, str] = {}  # by normalised text
    dropped: Counter[str] = Counter()
    for prompt in (text.strip() for text in texts):
        normalised = _normalised(prompt)
        reason = _rejection_reason(prompt, language) or ("duplicate" if normalised in accepted else "")
        if reason:
            dropped[reason] += 1
        else:
            accepted[normalised] = prompt
    near = _near_copies(list(accepted.values()))
    if near:
        dropped["near duplicate"] += len(near)
    return FilteredPrompts([prompt for i, prompt in enumerate(accepted.values()) if i not in near], dropped)


def kind_of(prompt: str) -> str:
    """Judged by the first words, which are English: other languages have only questions and instructions."""
    start = prompt.lstrip(" \n\"'([*#")
    if INSTRUCTION_STARTS.match(start):
        return "instruction"
    if prompt.rstrip().endswith(("?", "？", "؟")) or QUESTION_STARTS.match(start):
        return "question"
    return "chat" if CHAT_STARTS.match(start) else "instruction"


def count_kinds(prompts: Iterable[str]) -> dict[str, int]:
    counts = Counter(kind_of(prompt) for prompt in prompts)
    return {kind: counts[kind] for kind in ("instruction", "question", "chat")}


def _rejection_reason(prompt: str, language: str | None) -> str:
    words = prompt.split()
    if len(words) < MIN_WORDS and not (SPACELESS.search(prompt) and len(prompt) >= MIN_CHARACTERS):
        return "too short"
    if len(words) > MAX_WORDS:
        return "too long"
    if garbled(prompt):
        return "garbled"
    if _repeats_itself(words):
        return "repeats itself"
    return "another language" if language and _language(prompt) != language else ""


def garbled(text: str) -> bool:
    return bool(GARBLED.search(text))


def _repeats_itself(words: Sequence[str]) -> bool:
    """Whether more than a third of the 3-grams occurred before in the text."""
    grams = list(zip(words, words[1:], words[2:], strict=False))
    return len(words) >= REPETITION_WORDS and len(set(grams)) < 2 / 3 * len(grams)


def _language(text: str) -> str:
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:  # no letters
        return "none"


def _normalised(prompt: str) -> str:
    return " ".join(prompt.casefold().split()).rstrip(".!? ")


def _near_copies(prompts: list[str]) -> set[int]:
    signatures = Signatures()
    for i, prompt in enumerate(prompts):
        signatures.add(i, prompt)
    return set(near_copies(prompts, signatures, set()))
