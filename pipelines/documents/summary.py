"""What a corpus comes to before anything is learned from it: what is there, what was left out, what it would take."""

import math
from pathlib import Path
from typing import Any

from pipelines.documents import Corpus, count_tokens
from pipelines.settings import fixed_answers_share, resolve_settings, split_rows
from recovery.models.students import load_chat, parameters_of

SHOWN = 10


def summary(corpus: Corpus, base: str, root: Path) -> dict[str, Any]:
    parameters = parameters_of(base)
    settings = resolve_settings(parameters, root, {})[0]
    wanted = settings.midtrain
    tokens = count_tokens(corpus.texts, load_chat(base).tokenizer)
    taught = tokens + len(corpus.texts)  # every document has an end, which is learned too
    _, own = split_rows(wanted.rows, (0.0, wanted.mix.texts))
    steps = wanted.steps(math.ceil(taught / wanted.window), wanted.rows - own)
    share, read = fixed_answers_share(settings), steps * wanted.rows * wanted.window
    replayed = read * share / (1 - share)
    judged = (own / wanted.rows * read + replayed) * wanted.soft_labels  # a teacher reads these, too
    return {
        "path": str(corpus.path),
        "base": base,
        "hash": corpus.hash,
        "files": corpus.files,
        "documents": len(corpus.texts),
        "characters": corpus.texts.characters,
        "tokens": tokens,
        "copies": corpus.copies,
        "near_copies": [{"left_out": left, "resembles": kept} for left, kept in corpus.near_copies],
        "skipped": [{"file": str(file), "reason": reason} for file, reason in corpus.skipped],
        "steps": steps,
        "petaflops": parameters * (6 * (read + replayed) + 2 * judged) / 1e15,
    }


def in_words(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['documents']:,} documents in {found['files']:,} files: {found['tokens']:,} tokens of {found['base']}",
        f"left out: {found['copies']:,} copies, {len(found['near_copies']):,} near copies; "
        f"{len(found['skipped']):,} files not read",
    ]
    lines += _some([f"  {each['file']}: {each['reason']}" for each in found["skipped"]])
    lines += _some([f"  {each['left_out']} resembles {each['resembles']}" for each in found["near_copies"]])
    return [*lines, f"mid-training would take {found['steps']:,} steps, about {found['petaflops']:.2g} petaFLOPs"]


def _some(lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return [*lines[:SHOWN], f"  and {rest:,} more"] if rest > 0 else lines
