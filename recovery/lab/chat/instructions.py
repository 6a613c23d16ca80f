"""Instruction tasks in IFEval's format, with answers that follow the instructions by construction."""

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from recovery.lab.chat import answer_sentences as sentences
from recovery.lab.chat.answer_drafts import Draft, OutOfSentencesError
from recovery.lab.chat.instruction_combinations import combination
from recovery.lab.chat.instruction_kinds import CONSTRAINED, KINDS, REPEAT, Kwargs
from recovery.lab.chat.instruction_phrasings import PHRASINGS
from recovery.lab.chat.topics import Split

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
COUNTED = {"length_constraints:number_words", "length_constraints:number_sentences"}


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
    prompt = _assemble(rng, request, [phrasings[kind] for kind in kinds if kind != REPEAT])
    if REPEAT in kinds:
        draft.repeat = kwargs[REPEAT]["prompt_to_repeat"] = prompt
        prompt += "\n" + phrasings[REPEAT]
    answer = rng.choice(OPTIONS) if draft.layout == "constrained" else draft.write()
    return Task(key, prompt, kinds, [kwargs[kind] for kind in kinds], answer)


def _request(draft: Draft, kinds: list[str]) -> str:
    if CONSTRAINED in kinds:
        return draft.rng.choice(sentences.YES_NO).replace("{t}", draft.topic)
    genre = draft.genre
    if draft.rng.random() < 0.12 and not COUNTED & set(kinds):
        genre, draft.per_part, draft.count = f"long {genre}", 4, 12
    return draft.rng.choice(sentences.REQUESTS).replace("{g}", genre).replace("{t}", draft.topic)


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
            return sentences.LANGUAGES[value][0]
    return str(value)


def _word_list(rng: Random, words: list[str]) -> str:
    """Join words with "and"; no commas, since a prompt that must be repeated may forbid them."""
    quote = rng.choices(("", '"', "'"), (60, 25, 15))[0]
    return " and ".join(f"{quote}{word}{quote}" for word in words)


def _assemble(rng: Random, request: str, instructions: list[str]) -> str:
    first = instructions and rng.random() < 0.15
    parts = [*instructions, request] if first else [request, *instructions]
    return ("\n" if rng.random() < 0.2 else " ").join(parts)
