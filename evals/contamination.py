"""Training prompts that are evaluation items in disguise: found by the words they share, dropped, and counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evals.suites.answer_grading import words

RUN = 13  # words in a row, as GPT-3 was checked; shorter runs are what all instructions are made of


@dataclass(frozen=True)
class Leak:
    prompt: str
    shared: str  # the words in a row that an evaluation item has too


@dataclass(frozen=True)
class Sifted:
    kept: list[str]
    leaks: list[Leak]


def sift(prompts: Sequence[str], items: Iterable[str], run: int = RUN) -> Sifted:
    """Prompts that share no `run` words in a row with an item; one of fewer words must not be an item as a whole."""
    known: set[tuple[str, ...]] = set()
    for item in items:
        known.update(_runs(words(item), run))
    kept, leaks = [], []
    for prompt in prompts:
        shared = next((each for each in _runs(words(prompt), run) if each in known), None)
        if shared is None:
            kept.append(prompt)
        else:
            leaks.append(Leak(prompt, " ".join(shared)))
    return Sifted(kept, leaks)


def _runs(said: list[str], run: int) -> list[tuple[str, ...]]:
    if not said:
        return []
    return [tuple(said[i : i + run]) for i in range(max(1, len(said) - run + 1))]
