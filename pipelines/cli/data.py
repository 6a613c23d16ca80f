"""The commands about documents: documents (a look before training) and questions (written by the base)."""

import os
from pathlib import Path

import click

from pipelines.cli import Answer, answers, main, options
from pipelines.log import log


@main.command()
@click.argument("docs", type=options.existing)
@options.base
@answers
def documents(project: Path | None, docs: Path, base: str | None) -> Answer:
    """Read documents without learning them: what there is, what is left out and why, and what learning would take.

    \b
    Example: recover documents ./corpus
    """
    from pipelines.documents import read_corpus
    from pipelines.documents.summary import in_words, summary

    corpus = read_corpus(docs)
    found = summary(corpus, _base(project, base), project or Path.cwd())
    return Answer(found, in_words(found))


@main.command()
@options.together(options.docs, options.base)
@click.option("--out", type=options.existing, default=Path("questions.jsonl"), show_default=True, help="Where to.")
@click.option("--count", type=click.IntRange(min=1), default=200, show_default=True, help="So many at most.")
@click.option(
    "--against", type=options.existing, multiple=True, help="JSONL of an evaluation no question may repeat; repeatable."
)
@options.together(options.engine, options.seed)
@answers
def questions(
    project: Path | None,
    docs: Path,
    base: str | None,
    out: Path,
    count: int,
    against: tuple[Path, ...],
    engine: str | None,
    seed: int,
) -> Answer:
    """Have the clean base write closed-book questions on the documents; keep those that stand the test.

    A question is kept when the base answers it with the passage in view and fails without it. The file is yours to
    edit: every line holds a question, its answer, and the passage they come from.

    \b
    Example: recover questions --docs ./corpus --count 200 --out questions.jsonl
    """
    from pipelines.documents import read_corpus
    from pipelines.synthetic.questions.file import write_questions

    chosen = _base(project, base)
    log.info(f"{chosen} writes questions on {docs}")
    report = write_questions(
        read_corpus(docs),
        chosen,
        out,
        count=count,
        against=against,
        engine=engine,
        seed=seed,
    )
    found = {"questions": str(out), **report.as_dict()}
    words = [f"{report.kept} questions are in {out}, of {report.written} written about {report.passages} passages"]
    words += [f"  dropped: {reason}" for reason in report.reasons()]
    return Answer(found, [*words, f"next: recover cycle --docs {docs} --questions {out}"])


def _base(folder: Path | None, base: str | None) -> str:
    """As every command finds it, but without beginning a project."""
    from pipelines.project.project import Project
    from pipelines.setting_sources import read_toml
    from recovery.lab import BASE

    if Project.is_begun(folder):
        return Project.open(folder, base).base
    root = folder or Path.cwd()
    written = read_toml(root).get("base")
    if isinstance(written, str) and (root / written).exists():
        written = str(root / written)
    return str(base or os.environ.get("RECOVER_BASE") or written or BASE)
