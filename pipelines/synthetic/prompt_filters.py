"""What makes a set of prompts worth answering: neither too short nor too long, no babble, none twice, of every kind."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipelines.documents.near_duplicates import Signatures, near_copies

FEWEST_WORDS, MOST_WORDS = 2, 1_000
LEAST_SIGNS = 4  # instead of two words, in scripts that put no space between them
BABBLE = 20  # words from which on a text may repeat itself too often
GARBLED = re.compile(r"[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]")
SPACELESS = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")

ASKS = re.compile(
    r"(who|whom|whose|what|which|where|when|why|how|is|are|was|were|do|does|did|has|have|should|am)\b", re.IGNORECASE
)
BIDS = re.compile(r"(please\b|(can|could|would|will) you\b|(i want|i need|i would like|i'd like) you\b)", re.IGNORECASE)
CHATS = re.compile(
    r"(hi|hello|hey|thanks|thank you|good (morning|evening|afternoon|night)|yes|no|ok|okay|sorry|bye|i|i'm|i've|my|we|"
    r"it|that|this|you|he|she|they|there)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Tidied:
    kept: list[str]
    dropped: Counter[str]  # reason → how many


def tidied(prompts: Iterable[str], language: str | None = None) -> Tidied:
    """Languages are left alone unless one is asked for, by its code ("en")."""
    kept: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    for prompt in (prompt.strip() for prompt in prompts):
        reason = _why_not(prompt, language) or ("the same as another" if _bare(prompt) in kept else "")
        if reason:
            dropped[reason] += 1
        else:
            kept[_bare(prompt)] = prompt
    alike = _near_copies(list(kept.values()))
    if alike:
        dropped["nearly the same as another"] += len(alike)
    return Tidied([prompt for i, prompt in enumerate(kept.values()) if i not in alike], dropped)


def kind_of(prompt: str) -> str:
    """By its first words, which for most languages but English leaves questions and instructions."""
    start = prompt.lstrip(" \n\"'([*#")
    if BIDS.match(start):
        return "instruction"
    if prompt.rstrip().endswith(("?", "？", "؟")) or ASKS.match(start):
        return "question"
    return "chat" if CHATS.match(start) else "instruction"


def kinds(prompts: Iterable[str]) -> dict[str, int]:
    counted = Counter(kind_of(prompt) for prompt in prompts)
    return {kind: counted[kind] for kind in ("instruction", "question", "chat")}


def _why_not(prompt: str, language: str | None) -> str:
    words = prompt.split()
    if len(words) < FEWEST_WORDS and not (SPACELESS.search(prompt) and len(prompt) >= LEAST_SIGNS):
        return "too short"
    if len(words) > MOST_WORDS:
        return "too long"
    if garbled(prompt):
        return "garbled"
    if _repeats_itself(words):
        return "repeats itself"
    return "another language" if language and _language(prompt) != language else ""


def garbled(text: str) -> bool:
    return bool(GARBLED.search(text))


def _repeats_itself(words: Sequence[str]) -> bool:
    """More than a third of its runs of three words are runs that stood before."""
    runs = list(zip(words, words[1:], words[2:], strict=False))
    return len(words) >= BABBLE and len(set(runs)) < 2 / 3 * len(runs)


def _language(text: str) -> str:
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:  # nothing but numbers and signs
        return "none"


def _bare(prompt: str) -> str:
    return " ".join(prompt.casefold().split()).rstrip(".!? ")


def _near_copies(prompts: list[str]) -> set[int]:
    signatures = Signatures()
    for i, prompt in enumerate(prompts):
        signatures.add(i, prompt)
    return set(near_copies(prompts, signatures, set()))
