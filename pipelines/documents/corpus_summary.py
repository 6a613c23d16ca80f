"""Summarise a corpus before training: what is in it, what was left out, and what mid-training on it would take."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.documents import Corpus, count_tokens
from pipelines.settings.resolve import resolve_settings
from pipelines.settings.schedule import scheduled
from pipelines.settings.schema import Settings, fixed_answers_share, split_rows
from recovery.models.students import load_chat, parameters_of

MAX_LINES = 10  # of a list


@dataclass(frozen=True)
class CorpusSummary:
    path: str
    base: str
    hash: str
    files: int
    documents: int
    characters: int
    tokens: int
    copies: int
    near_copies: list[dict[str, str]]  # {"left_out": file, "resembles": file}
    skipped: list[dict[str, str]]  # {"file": …, "reason": …}
    steps: int
    petaflops: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(corpus: Corpus, base: str, root: Path) -> CorpusSummary:
    """The summary for mid-training `base` with the settings of the project folder `root`."""
    parameters = parameters_of(base)
    settings = resolve_settings(parameters, root, {})[0]
    tokens = count_tokens(corpus.texts, load_chat(base).tokenizer)
    steps, petaflops = _cost(parameters, settings, tokens + len(corpus.texts))  # every document has an end token
    return CorpusSummary(
        path=str(corpus.path),
        base=base,
        hash=corpus.hash,
        files=corpus.files,
        documents=len(corpus.texts),
        characters=corpus.texts.characters,
        tokens=tokens,
        copies=corpus.copies,
        near_copies=[{"left_out": left_out, "resembles": other} for left_out, other in corpus.near_copies],
        skipped=[{"file": str(file), "reason": reason} for file, reason in corpus.skipped],
        steps=steps,
        petaflops=petaflops,
    )


@dataclass(frozen=True)
class MidtrainingWork:
    """What mid-training on a corpus reads, in tokens of all its steps."""

    steps: int
    by_label: float
    by_teacher: float


def midtraining_work(settings: Settings, tokens: int) -> MidtrainingWork:
    """Of mid-training without earlier cycles, on documents of so many tokens."""
    midtrain = scheduled(settings.midtrain, tokens)
    _, text_rows = split_rows(midtrain.step_rows, (0.0, midtrain.mix.texts))
    steps = midtrain.steps(math.ceil(tokens / midtrain.window), midtrain.step_rows - text_rows)
    share, read = fixed_answers_share(settings), steps * midtrain.step_rows * midtrain.window
    answers = read * share / (1 - share)
    taught = (text_rows / midtrain.step_rows * read + answers) * midtrain.soft_labels
    return MidtrainingWork(steps, read + answers - taught, taught)


def _cost(parameters: int, settings: Settings, tokens: int) -> tuple[int, float]:
    """(steps, petaFLOPs) of mid-training on documents of so many tokens."""
    work = midtraining_work(settings, tokens)
    return work.steps, parameters * (6 * work.by_label + 8 * work.by_teacher) / 1e15


def summary_lines(summary: CorpusSummary) -> list[str]:
    lines = [
        f"{summary.documents:,} documents in {summary.files:,} files: {summary.tokens:,} tokens of {summary.base}",
        f"Left out: {summary.copies:,} copies, {len(summary.near_copies):,} near copies; "
        f"{len(summary.skipped):,} files not read",
    ]
    lines += _first([f"  {skipped['file']}: {skipped['reason']}" for skipped in summary.skipped])
    lines += _first([f"  {copy['left_out']} resembles {copy['resembles']}" for copy in summary.near_copies])
    return [*lines, f"Mid-training would take {summary.steps:,} steps, about {summary.petaflops:.2g} petaFLOPs"]


def _first(lines: list[str]) -> list[str]:
    rest = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"  and {rest:,} more"] if rest > 0 else lines
