"""Commands that measure models (eval, compare), and those about documents (documents, questions)."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evals.benchmarks import BENCHMARKS
from pipelines.cli import CommandResult, check_writable, command_result, main, options
from pipelines.log import log
from pipelines.settings.sources import EngineName
from recovery.errors import RecoverError

if TYPE_CHECKING:
    from db.tables import Checkpoint
    from evals.results import Result
    from pipelines.documents.corpus import Corpus
    from pipelines.project.project import Project

suite = click.option(
    "--suite",
    type=click.Choice(["behaviour", "knowledge", "retention", "all", *BENCHMARKS]),
    metavar="NAME",
    default="all",
    show_default=True,
    help=f"What to measure: behaviour, knowledge, retention, all of these, or a benchmark: {', '.join(BENCHMARKS)}.",
)
rerun = click.option("--rerun", is_flag=True, help="Measure again instead of reusing stored results.")
measured = options.of_request("limit", "ifeval_data", "questions", "engine")


@main.command("eval")
@click.argument("ref", default="current")
@options.of_request("base")
@suite
@measured
@rerun
@command_result
def evaluate(project: Path | None, ref: str, base: str | None, **how: Any) -> CommandResult:
    """Measure a checkpoint; stored results are reused.

    \b
    Example: recover eval current --suite behaviour --limit 200
    """
    from pipelines.project.project import Project
    from pipelines.settings.resolve import engine_of
    from recovery.models.students import config_of

    opened = Project.open(project, base)
    config_of(opened.path_of(ref))  # it exists, or no project is created
    how["engine"] = engine_of(opened.root, how["engine"])
    (results,) = _measure(opened, [(ref, opened.resolve(ref))], **how)
    data = {"checkpoint": ref, "evaluations": [result.to_json() for result in results]}
    return CommandResult(data, [line for result in results for line in _result_lines(result)])


@main.command()
@click.argument("first")
@click.argument("second")
@suite
@measured
@rerun
@click.option("--drift", is_flag=True, help="Also measure how far both have drifted from the clean base.")
@command_result
def compare(project: Path | None, first: str, second: str, drift: bool, **how: Any) -> CommandResult:
    """Compare two checkpoints on the same items.

    Shows which items were lost and gained, and whether the difference may be chance. Where the clean base was measured
    on the same items, also shows what both have forgotten and how much was recovered.

    \b
    Example: recover compare base current
    """
    from pipelines.evaluation.checkpoint_measurement import comparable_results
    from pipelines.evaluation.compare import compare_results, mean_forgetting, mean_lines
    from pipelines.evaluation.drift import checkpoint_drift, new_task
    from pipelines.evaluation.printed_tables import drift_table
    from pipelines.project.project import Project
    from pipelines.settings.resolve import engine_of
    from recovery.models.students import config_of

    opened = Project.open(project)
    for ref in (first, second):
        config_of(opened.path_of(ref))  # both exist, or no project is created and nothing measured
    pair = [(ref, opened.resolve(ref)) for ref in (first, second)]  # both, before either is measured
    how["engine"] = engine_of(opened.root, how["engine"])
    before, after = _measure(opened, pair, **how)
    comparisons = compare_results(before, after, comparable_results(opened, opened.clean, before))
    means = mean_forgetting(comparisons)
    tasks = [task.as_json() for task in comparisons]
    data: dict[str, Any] = {"first": first, "second": second, "tasks": tasks, **means, "drift": None}
    lines = [f"{first} → {second}", *(line for task in comparisons for line in task.lines()), *mean_lines(means)]
    if drift:
        new = new_task(opened, [checkpoint for _, checkpoint in pair], how["questions"])
        settings = {name: how[name] for name in ("ifeval_data", "engine", "rerun")}
        drifts = [checkpoint_drift(opened, checkpoint, new, **settings) for _, checkpoint in pair]
        sides = zip(("first", "second"), drifts, strict=True)
        data["drift"] = {side: [result.to_json() for result in results] for side, results in sides}
        lines += drift_table((first, second), *drifts)
    return CommandResult(data, lines)


def _measure(
    project: "Project",
    named: Sequence[tuple[str, "Checkpoint"]],
    *,
    suite: str,
    limit: int | None,
    ifeval_data: Path | None,
    questions: Path | None,
    engine: EngineName,
    rerun: bool,
) -> list[list["Result"]]:
    """The results of each checkpoint, which stands behind its reference.

    Where all results on the public IFEval prompts are stored, they are used even if these cannot be downloaded now."""
    from evals.suites.config import load_suites
    from pipelines.evaluation.checkpoint_measurement import is_measured, measure_checkpoint
    from pipelines.evaluation.evaluation_plan import EvalPlan, lineage_questions

    checkpoints = [checkpoint for _, checkpoint in named]
    plan = EvalPlan(suite, questions or lineage_questions(project, checkpoints), ifeval_data, limit=limit)
    public = replace(plan, public_ifeval=True) if plan.may_use_public_ifeval else plan
    if not rerun and all(is_measured(project, checkpoint, public, engine) for checkpoint in checkpoints):
        plan = public
    else:
        plan = plan.with_public_ifeval_checked(load_suites(project.base))
    return [
        measure_checkpoint(project, checkpoint, plan, None, ref, engine=engine, rerun=rerun)
        for ref, checkpoint in named
    ]


def _result_lines(result: "Result") -> list[str]:
    from pipelines.evaluation.printed_tables import describe_cost

    lines = [
        f"{result.task} ({result.suite}, {result.data}, {len(result.items)} items)",
        f"  took {describe_cost(result.seconds, result.cost)}",
    ]
    for name, metric in result.metrics.items():
        low, high = metric.ci95
        interval = f"[{low:.3f}, {high:.3f}]" if metric.n > 1 else "-"
        lines.append(f"  {name:<34} {metric.value:.3f}  {interval}  n = {metric.n}")
    return lines


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
    from pipelines.documents.corpus import read_corpus
    from pipelines.project.locations import find_root
    from pipelines.project.project import Project

    corpus = read_corpus(docs)
    opened = Project.open(project, base)
    summary = _summary(corpus, opened, find_root(project))
    return CommandResult(summary, _summary_lines(summary, corpus))


def _summary(corpus: "Corpus", project: "Project", root: Path) -> dict[str, Any]:
    """What mid-training of the base would read, with the settings of the project folder `root`."""
    from pipelines.documents.tokenization import count_tokens
    from pipelines.settings.defaults import midtraining_steps
    from pipelines.settings.resolve import resolve_settings
    from recovery.models.chat_template import document_ends
    from recovery.models.students import load_chat, parameters_of

    def token(id: int) -> dict[str, Any]:
        return {"id": id, "token": chat.tokenizer.decode([id])}

    settings, chat = resolve_settings(parameters_of(project.base), root, {}).settings, load_chat(project.base)
    tokens = count_tokens(corpus.texts, chat.tokenizer)
    return {
        "path": str(corpus.path),
        "base": project.base_name,
        "hash": corpus.hash,
        "files": corpus.files,
        "documents": len(corpus.texts),
        "characters": corpus.texts.characters,
        "tokens": tokens,
        "copies": corpus.texts.copies,
        "skipped": [{"file": str(file), "reason": reason} for file, reason in corpus.skipped],
        "separator": token(chat.separator),
        "separator_candidates": [token(id) for id in document_ends(chat.tokenizer)],
        "stop_tokens": [token(id) for id in sorted(chat.eos_ids)],
        "steps": midtraining_steps(settings.midtrain, tokens + len(corpus.texts) * chat.tokens_around_document),
    }


def _summary_lines(summary: dict[str, Any], corpus: "Corpus") -> list[str]:
    from pipelines.documents.corpus import number_of

    separator, copies = summary["separator"], summary["copies"]
    lines = [
        f"{number_of(summary['documents'], 'document')} in {number_of(summary['files'], 'file')}: "
        f"{number_of(summary['tokens'], 'token')} of {summary['base']}",
        f"Left out: {copies:,} {'copy' if copies == 1 else 'copies'}; {number_of(corpus.unread, 'file')} not read",
        *(f"  {line}" for line in corpus.skipped_lines()),
    ]
    others = _names([token for token in summary["separator_candidates"] if token != separator])
    measured = f", unless mid-training finds the corpus likelier after {others}" if others else ""
    lines += [f"A document ends with {_names([separator])}{measured}; a reply with {_names(summary['stop_tokens'])}"]
    return [*lines, f"Mid-training would take {number_of(summary['steps'], 'step')}"]


def _names(tokens: list[dict[str, Any]]) -> str:
    return " or ".join(f"{token['token']} ({token['id']})" for token in tokens)


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
    from pipelines.documents.corpus import check_questions_apart, read_corpus
    from pipelines.project.project import Project
    from pipelines.settings.resolve import engine_of
    from pipelines.synthetic.questions import write_questions

    check_questions_apart(out, docs)
    check_writable(out, "--out")
    if out.exists():
        raise RecoverError(f"The file {out} exists already, perhaps with your edits. Name another file with --out.")
    opened = Project.open(project, base)
    log.info(f"{opened.base_name} writes questions on {docs}")
    corpus = read_corpus(docs)
    engine = engine_of(opened.root, engine)
    report = write_questions(
        corpus, opened.base, out, count=count, decontaminate=decontaminate, engine=engine, seed=seed
    )
    lines = [f"{out} has {report.kept} questions, of {report.written} written about {report.passages} passages"]
    lines += [f"  dropped: {reason}" for reason in report.reasons()]
    of_base = ["--base", base] if base else []
    lines += [f"next: recover cycle {shlex.join(['--docs', str(docs), '--questions', str(out), *of_base])}"]
    return CommandResult({"questions": str(out), **report.as_dict()}, lines)
