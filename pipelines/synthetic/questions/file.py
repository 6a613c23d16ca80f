"""The file of questions: written once, then the user's to edit."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from evals.jsonl import read_rows
from evals.subject import Subject
from pipelines.documents import Corpus
from pipelines.documents.passages import spread
from pipelines.files import write_atomic
from pipelines.log import log
from pipelines.models import open_subject
from pipelines.synthetic.filter_counts import Tally
from pipelines.synthetic.questions.generate import ask_about
from recovery.errors import RecoverError

TOLD = 20  # questions between two words on how far it is
ITEMS = ("question", "prompt", "text")  # where an evaluation's files say what is asked


def write_questions(
    corpus: Corpus,
    base: str,
    out: Path,
    *,
    count: int,
    against: Sequence[Path] = (),
    engine: str | None = None,
    seed: int = 0,
) -> Tally:
    if out.exists():
        raise RecoverError(f"{out} is there already, perhaps with your edits; name another file with --out")
    evaluations = [item for file in against for item in _items(file)]
    with open_subject(base, engine or "transformers") as clean:
        return keep_questions(clean, corpus, out, count, evaluations, seed)


def keep_questions(
    subject: Subject,
    corpus: Corpus,
    out: Path,
    count: int,
    evaluations: Sequence[str] = (),
    seed: int = 0,
) -> Tally:
    report = Tally()
    passages = ((corpus.source(number), passage) for number, passage in spread(corpus.texts, seed))
    found = ask_about(subject, passages, report, evaluations=evaluations, seed=seed)
    lines: list[str] = []
    try:
        for kept in islice(found, count):
            lines.append(json.dumps(asdict(kept), ensure_ascii=False) + "\n")
            if len(lines) % TOLD == 0:
                log.info(f"  {len(lines)} kept of {report.written} written, {report.passages} passages read")
    except KeyboardInterrupt:
        if not lines:
            raise
        write_atomic(out, lines)
        raise KeyboardInterrupt(f"the {len(lines)} questions found so far are in {out}") from None
    if not lines:
        raise RecoverError(
            f"none of the {report.written} questions that the base wrote stood the test "
            f"({', '.join(report.reasons(3)) or 'no passage'}); "
            "write some yourself for --questions, or name a more capable model with --base"
        )
    write_atomic(out, lines)
    return report


def _items(file: Path) -> Iterator[str]:
    for where, row in read_rows(file):
        said = next((row[name] for name in ITEMS if isinstance(row.get(name), str)), None)
        if said is None:
            raise RecoverError(f"{where}: no question, prompt or text, so nothing can be held against it")
        yield said
