"""Commands about documents: documents (a summary before training) and questions (written by the base)."""

from dataclasses import replace
from pathlib import Path

import click

from pipelines.cli import CommandResult, command_result, main
from pipelines.cli import shared_options as options
from pipelines.log import log
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName


@main.command()
@click.argument("docs", type=options.file_path)
@options.of_request("base")
@command_result
def documents(project: Path | None, docs: Path, base: str | None) -> CommandResult:
    """Summarise documents without training on them.

    Shows what was read, what was left out and why, and how many steps mid-training would take.

    \b
    Example: recover documents ./corpus
    """
    from pipelines.documents import read_corpus
    from pipelines.documents.corpus_summary import summarise, summary_lines
    from pipelines.project.locations import find_root
    from pipelines.project.project import Project

    corpus = read_corpus(docs)
    opened = Project.open(project, base)
    summary = replace(summarise(corpus, opened.base, find_root(project)), base=opened.base_name)
    return CommandResult(summary.as_dict(), summary_lines(summary))


@main.command()
@options.of_request("docs", "base")
@click.option(
    "--out", type=options.file_path, default=Path("questions.jsonl"), show_default=True, help="The file to write."
)
@click.option(
    "--count", type=click.IntRange(min=1), default=200, show_default=True, help="Write at most this many questions."
)
@click.option(
    "--decontaminate",
    type=options.file_path,
    multiple=True,
    help="JSONL of an evaluation whose questions must not be repeated; repeatable.",
)
@options.of_request("engine", "seed")
@command_result
def questions(
    project: Path | None,
    docs: Path,
    base: str | None,
    out: Path,
    count: int,
    decontaminate: tuple[Path, ...],
    engine: EngineName | None,
    seed: int,
) -> CommandResult:
    """Let the base write closed-book questions on documents.

    A question is kept if the base answers it with the passage in its prompt and fails without it. You may edit the
    file: every line holds a question, its answer, and their passage.

    \b
    Example: recover questions --docs ./corpus --count 200 --out questions.jsonl
    """
    from pipelines.documents import read_corpus
    from pipelines.project.project import Project
    from pipelines.synthetic.questions import write_questions

    opened = Project.open(project, base)
    log.info(f"{opened.base_name} writes questions on {docs}")
    corpus = read_corpus(docs)
    report = write_questions(
        corpus, opened.base, out, count=count, decontaminate=decontaminate, engine=engine or DEFAULT_ENGINE, seed=seed
    )
    lines = [f"{out} has {report.kept} questions, of {report.written} written about {report.passages} passages"]
    lines += [f"  dropped: {reason}" for reason in report.reasons()]
    lines += [f"next: recover cycle --docs {docs} --questions {out}"]
    return CommandResult({"questions": str(out), **report.as_dict()}, lines)
