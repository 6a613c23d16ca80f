"""Decontamination: remove training prompts that overlap with evaluation items.

Two texts overlap when they share a run of `run_length` normalized words (an n-gram).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evals.suites.answer_grading import count_words, normalized_words

RUN_LENGTH = 13  # words, the n-gram size of the GPT-3 check; shorter runs occur in unrelated instructions


@dataclass(frozen=True)
class Decontaminated:
    clean: list[str]
    contaminated: dict[str, str]  # by prompt: the run of words that also occurs in an evaluation item


def remove_contaminated(prompts: Sequence[str], items: Iterable[str], run_length: int = RUN_LENGTH) -> Decontaminated:
    """Split the prompts into clean and contaminated ones, in their order.

    A prompt shorter than `run_length` words is contaminated only if it equals a whole item of the same length."""
    item_runs: set[tuple[str, ...]] = set()
    for item in items:
        item_runs.update(_word_runs(item, run_length))
    clean, contaminated = [], {}
    for prompt in prompts:
        shared = next((run for run in _word_runs(prompt, run_length) if run in item_runs), None)
        if shared is None:
            clean.append(prompt)
        else:
            contaminated[prompt] = " ".join(shared)
    return Decontaminated(clean, contaminated)


def _word_runs(text: str, length: int) -> list[tuple[str, ...]]:
    words, runs = normalized_words(text), list[tuple[str, ...]]()
    end, size = 0, 0.0
    for start, word in enumerate(words):
        while size < length and end < len(words):
            size += count_words(words[end : end + 1])
            end += 1
        if start and size < length:
            break
        runs.append(tuple(words[start:end]))
        size -= count_words([word])
    return runs
