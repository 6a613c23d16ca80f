"""The commands that look: eval, status."""

from pathlib import Path
from typing import Any

import click

from pipelines.cli import Answer, answers, main, options, say


@main.command("eval")
@click.argument("ref", default="current")
@options.base
@click.option(
    "--suite",
    type=click.Choice(["behaviour", "knowledge", "retention", "all"]),
    default="all",
    show_default=True,
    help="What to measure.",
)
@options.together(options.limit, options.ifeval_data, options.questions)
@answers
def evaluate(
    project: Path | None,
    ref: str,
    base: str | None,
    suite: str,
    limit: int | None,
    ifeval_data: Path | None,
    questions: Path | None,
) -> Answer:
    """Measure one checkpoint and put it on record.

    \b
    Example: recover eval current --suite behaviour --limit 200
    """
    from pipelines.measuring import Measures, measure_checkpoint
    from pipelines.project import Project

    opened = Project.open(project, base)
    checkpoint = opened.resolve(ref)
    measures = Measures(suite, questions, ifeval_data, limit)
    results = measure_checkpoint(opened, checkpoint, measures, None, say)
    words = []
    for result in results:
        words.append(f"{result.task} ({result.suite}, {result.data}, {len(result.items)} items)")
        for name, metric in result.metrics.items():
            low, high = metric.ci95
            interval = f"[{low:.3f}, {high:.3f}]" if metric.n > 1 else "-"
            words.append(f"  {name:<34} {metric.value:.3f}  {interval}  n = {metric.n}")
    return Answer({"checkpoint": ref, "evaluations": [r.to_json() for r in results]}, words)


@main.command()
@answers
def status(project: Path | None) -> Answer:
    """Where the project stands, and what to run next.

    \b
    Example: recover status
    """
    from pipelines.project import Project

    if not Project.is_begun(project):
        following = "recover demo, or recover midtrain --docs DIR"
        nothing: dict[str, Any] = {"project": None, "base": None, "current": None, "cycles": [], "next": following}
        return Answer(nothing, [f"no project here yet; next: {following}"])
    opened = Project.open(project)
    cycles = opened.reader.cycles(opened.id)
    following = "recover distill --teacher base" if opened.latest_midtrained() else "recover cycle --docs DIR"
    listed = [
        {
            "cycle": c.number,
            "status": c.status,
            "documents": c.documents,
            **{
                name: {suite: score.value for suite, score in stage.scores.items()}
                for name, stage in (("clean", c.clean), ("damaged", c.damaged), ("recovered", c.recovered))
            },
        }
        for c in cycles
    ]
    found = {
        "project": str(opened.root),
        "base": opened.base,
        "current": opened.current.reference,
        "cycles": listed,
        "next": following,
    }
    words = [f"base     {opened.base}", f"current  {found['current']}"]
    words += [f"cycle {c.number}  {c.status}  {c.documents or ''}" for c in cycles]
    return Answer(found, [*words, f"next: {following}"])
