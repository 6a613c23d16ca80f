"""Write the file of generated questions. It is written once; after that it is the user's to edit."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from evals.jsonl import read_rows
from evals.subject import Subject
from pipelines.documents import Corpus
from pipelines.documents.passages import interleaved_passages
from pipelines.log import log
from pipelines.model_loading import open_subject
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName
from pipelines.storage.atomic_files import JsonLines
from pipelines.synthetic.filter_counts import FilterCounts
from pipelines.synthetic.questions.generate import GeneratedQuestion, generate_questions
from recovery.errors import RecoverError

PROGRESS_EVERY = 20  # questions
ITEM_FIELDS = ("question", "prompt", "text")  # of an evaluation's file


def write_questions(
    corpus: Corpus,
    base: str,
    out: Path,
    *,
    count: int,
    decontaminate: Sequence[Path] = (),
    engine: EngineName = DEFAULT_ENGINE,
    seed: int = 0,
) -> FilterCounts:
    """Have the base write up to `count` questions on the corpus into the new file `out`.

    No question repeats an item of the evaluation files in `decontaminate`."""
    if out.exists():
        raise RecoverError(f"The file {out} exists already, perhaps with your edits. Name another file with --out.")
    items = [item for file in decontaminate for item in _items(file)]
    with open_subject(base, engine) as subject:
        return save_questions(subject, corpus, out, count, items, seed)


def save_questions(
    subject: Subject,
    corpus: Corpus,
    out: Path,
    count: int,
    evaluation_items: Sequence[str] = (),
    seed: int = 0,
) -> FilterCounts:
    counts = FilterCounts()
    passages = ((corpus.source(number), passage) for number, passage in interleaved_passages(corpus.texts, seed))
    questions = generate_questions(subject, passages, counts, evaluation_items=evaluation_items, seed=seed)
    accepted: list[GeneratedQuestion] = []
    try:
        for question in islice(questions, count):
            accepted.append(question)
            if len(accepted) % PROGRESS_EVERY == 0:
                log.info(f"  Kept {len(accepted)} of {counts.written} questions on {counts.passages} passages")
    except KeyboardInterrupt:
        if not accepted:
            raise
        JsonLines(out).write(map(asdict, accepted))
        raise KeyboardInterrupt(f"The {len(accepted)} questions kept so far are in {out}.") from None
    if not accepted:
        raise RecoverError(
            f"None of the {counts.written} questions that the base wrote passed the filters "
            f"({', '.join(counts.reasons(3)) or 'no passage'}). "
            "Write questions yourself for --questions, or name a more capable model with --base."
        )
    JsonLines(out).write(map(asdict, accepted))
    return counts


def _items(file: Path) -> Iterator[str]:
    for location, row in read_rows(file):
        item = next((row[name] for name in ITEM_FIELDS if isinstance(row.get(name), str)), None)
        if item is None:
            raise RecoverError(
                f"{location} has no field {', '.join(ITEM_FIELDS[:-1])} or {ITEM_FIELDS[-1]}. "
                "Give --decontaminate JSONL files that have one in every row."
            )
        yield item
