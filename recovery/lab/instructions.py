"""Instruction tasks in IFEval's format, with answers that follow the instructions by construction.

The conflicts are IFEval's own, and more that arise in short answers."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from recovery.lab.answer_drafts import CONSTRAINED, KINDS, REPEAT, SENTENCES, Draft, Kwargs, OutOfSentencesError
from recovery.lab.words import Split, split_of, table

PHRASINGS = table("phrasings")
COUNTED = {"length_constraints:number_words", "length_constraints:number_sentences"}
SIZES = (1, 2, 3)
WEIGHTS = {"train": (35, 35, 30), "heldout": (45, 35, 20), "natural": (60, 30, 10)}  # training has more of the hardest


def _kinds(text: str) -> set[str]:
    """Return instruction kinds by the last part of their names."""
    short = {kind.split(":")[1]: kind for kind in KINDS}
    return {short[word] for word in text.split()}


LAYOUTS = _kinds("""
    number_bullet_lists number_paragraphs nth_paragraph_first_word multiple_sections two_responses json_format
    number_sentences
""")
ONLY_WITH = {
    CONSTRAINED: set(),
    REPEAT: _kinds("existence title no_comma"),
    "detectable_format:json_format": _kinds("forbidden_words existence"),
    "combination:two_responses": _kinds("forbidden_words existence title no_comma"),
    "language:response_language": _kinds("number_bullet_lists number_paragraphs no_comma quotation title"),
    "change_case:english_capital": LAYOUTS
    | _kinds("""
        number_placeholders postscript title letter_frequency forbidden_words no_comma quotation
        number_highlighted_sections
    """),
}
NEVER_TOGETHER = [
    LAYOUTS,
    LAYOUTS - _kinds("nth_paragraph_first_word") | _kinds("number_highlighted_sections"),
    _kinds("number_words number_sentences english_lowercase"),
    _kinds("number_sentences english_capital"),
    _kinds("english_capital english_lowercase capital_word_frequency"),
    _kinds("title quotation nth_paragraph_first_word"),
    _kinds("multiple_sections english_lowercase"),
    _kinds("multiple_sections english_capital"),
    _kinds("multiple_sections capital_word_frequency"),
]


@dataclass(frozen=True)
class Task:
    """A prompt in IFEval's format with an answer that follows it."""

    key: int
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[Kwargs]
    answer: str


def instruction_tasks(seed: int, n: int, split: Split = "heldout") -> list[Task]:
    rng = Random(f"instructions/{split}/{seed}")
    return [instruction_task(rng, split, key) for key in range(n)]


def instruction_task(rng: Random, split: Split, key: int = 0) -> Task:
    while True:
        with suppress(OutOfSentencesError):
            return _task(rng, split, key)


def _task(rng: Random, split: Split, key: int) -> Task:
    kinds = combination(rng, split)
    draft = Draft.new(rng, split)
    request = _request(draft, kinds)
    kwargs = {kind: apply(draft) for kind, apply in KINDS.items() if kind in kinds}
    phrasings = {kind: _phrase(rng, kind, kwargs[kind]) for kind in kinds}
    instructions = [phrasings[kind] for kind in kinds if kind != REPEAT]
    first = instructions and rng.random() < 0.15
    parts = [*instructions, request] if first else [request, *instructions]
    prompt = ("\n" if rng.random() < 0.2 else " ").join(parts)
    if REPEAT in kinds:
        draft.repeat = kwargs[REPEAT]["prompt_to_repeat"] = prompt
        prompt += "\n" + phrasings[REPEAT]
    answer = rng.choice(SENTENCES["options"]) if draft.layout == "constrained" else draft.write()
    return Task(key, prompt, kinds, [kwargs[kind] for kind in kinds], answer)


def _request(draft: Draft, kinds: list[str]) -> str:
    if CONSTRAINED in kinds:
        return draft.rng.choice(SENTENCES["yes_no"]).replace("{t}", draft.topic)
    genre = draft.genre
    if draft.rng.random() < 0.12 and not COUNTED & set(kinds):
        genre, draft.per_part, draft.count = f"long {genre}", 4, 12
    return draft.rng.choice(SENTENCES["requests"]).replace("{g}", genre).replace("{t}", draft.topic)


def _phrase(rng: Random, kind: str, kwargs: Kwargs) -> str:
    arguments = {name: _as_text(rng, name, value) for name, value in kwargs.items()}
    return rng.choice(PHRASINGS[kind]).format(**arguments)


def _as_text(rng: Random, name: str, value: Any) -> str:
    match name:
        case "keywords" | "forbidden_words":
            return _word_list(rng, value)
        case "keyword":
            return _word_list(rng, [value])
        case "first_word":
            return value.capitalize() if rng.random() < 0.7 else value
        case "language":
            return SENTENCES["languages"][value]
    return str(value)


def _word_list(rng: Random, words: list[str]) -> str:
    """Join words with "and"; no commas, since a prompt that must be repeated may forbid them."""
    quote = rng.choices(("", '"', "'"), (60, 25, 15))[0]
    return " and ".join(f"{quote}{word}{quote}" for word in words)


@cache
def compatible(first: str, second: str) -> bool:
    pair = {first, second}
    if len(pair) == 1 or any(pair <= group for group in NEVER_TOGETHER):
        return False
    return second in ONLY_WITH.get(first, KINDS) and first in ONLY_WITH.get(second, KINDS)


def combination(rng: Random, split: Split) -> list[str]:
    """Return one to three compatible kinds. Single kinds are in both splits: only combinations are held out."""
    size = rng.choices(SIZES, WEIGHTS[split])[0]
    while True:
        kinds: list[str] = []
        while len(kinds) < size and (free := [k for k in KINDS if all(compatible(k, other) for other in kinds)]):
            kinds.append(rng.choice(free))
        if size == 1 or (len(kinds) == size and split in ("natural", combination_split(kinds))):
            return kinds


def combination_split(kinds: list[str]) -> Split:
    """Return the split of a combination by its content; about one in ten is held out."""
    return split_of("+".join(sorted(kinds)))
