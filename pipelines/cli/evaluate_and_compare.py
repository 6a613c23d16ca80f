"""Commands that measure models: eval, compare."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, main
from pipelines.cli import shared_options as options
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName

if TYPE_CHECKING:
    from db.tables import Checkpoint
    from evals.results import Result
    from pipelines.evaluation.evaluation_plan import EvalPlan
    from pipelines.project.project import Project

suite = click.option(
    "--suite",
    type=click.Choice(["behaviour", "knowledge", "retention", "all"]),
    default="all",
    show_default=True,
    help="What to measure.",
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
def evaluate(
    project: Path | None,
    ref: str,
    base: str | None,
    suite: str,
    limit: int | None,
    ifeval_data: Path | None,
    questions: Path | None,
    engine: EngineName | None,
    rerun: bool,
) -> CommandResult:
    """Measure a checkpoint; stored results are reused.

    \b
    Example: recover eval current --suite behaviour --limit 200
    """
    from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
    from pipelines.evaluation.evaluation_plan import EvalPlan
    from pipelines.evaluation.lineage_questions import lineage_questions
    from pipelines.project.project import Project

    opened = Project.open(project, base)
    checkpoint = opened.resolve(ref)
    questions = questions or lineage_questions(opened, [checkpoint])
    plan = _with_public_prompts(opened, [checkpoint], EvalPlan(suite, questions, ifeval_data, limit=limit), rerun)
    results = measure_checkpoint(opened, checkpoint, plan, None, ref, engine=engine or DEFAULT_ENGINE, rerun=rerun)
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
def compare(
    project: Path | None,
    first: str,
    second: str,
    suite: str,
    limit: int | None,
    ifeval_data: Path | None,
    questions: Path | None,
    engine: EngineName | None,
    rerun: bool,
    drift: bool,
) -> CommandResult:
    """Compare two checkpoints on the same items.

    Shows which items were lost and gained, and whether the difference may be chance. Where the clean base was measured
    on the same items, also shows what both have forgotten and how much was recovered.

    \b
    Example: recover compare base current
    """
    from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
    from pipelines.evaluation.compare import compare_results, mean_forgetting, mean_lines
    from pipelines.evaluation.drift import checkpoint_drift, new_task
    from pipelines.evaluation.evaluation_plan import EvalPlan
    from pipelines.evaluation.lineage_questions import lineage_questions
    from pipelines.evaluation.printed_tables import drift_table
    from pipelines.evaluation.results_store import comparable_results
    from pipelines.project.project import Project

    opened = Project.open(project)
    for ref in (first, second):
        opened.path_of(ref)  # both exist, or no project is created
    pair = [opened.resolve(ref) for ref in (first, second)]  # both, before either is measured
    plan = EvalPlan(suite, questions or lineage_questions(opened, pair), ifeval_data, limit=limit)
    plan = _with_public_prompts(opened, pair, plan, rerun)
    engine = engine or DEFAULT_ENGINE
    before, after = (
        measure_checkpoint(opened, checkpoint, plan, None, ref, engine=engine, rerun=rerun)
        for checkpoint, ref in zip(pair, (first, second), strict=True)
    )
    comparisons = compare_results(before, after, comparable_results(opened, opened.clean, before))
    means = mean_forgetting(comparisons)
    data: dict[str, Any] = {
        "first": first,
        "second": second,
        "tasks": [task.as_json() for task in comparisons],
        **means,
        "drift": None,
    }
    lines = [f"{first} → {second}", *(line for task in comparisons for line in task.lines()), *mean_lines(means)]
    if drift:
        new = new_task(opened, pair, questions)
        drifts = [
            checkpoint_drift(opened, checkpoint, new, ifeval_data=ifeval_data, engine=engine, rerun=rerun)
            for checkpoint in pair
        ]
        sides = zip(("first", "second"), drifts, strict=True)
        data["drift"] = {side: [result.to_json() for result in results] for side, results in sides}
        lines += drift_table((first, second), *drifts)
    return CommandResult(data, lines)


def _with_public_prompts(
    project: "Project", checkpoints: Sequence["Checkpoint"], plan: "EvalPlan", rerun: bool
) -> "EvalPlan":
    """The plan, with the choice made whether to use the public IFEval prompts. Where all results on them are stored,
    they are used even if the prompts cannot be downloaded now."""
    from evals.suites.config import load_suites
    from pipelines.evaluation.checkpoint_measurement import is_measured

    public = replace(plan, public_ifeval=True) if plan.may_use_public_ifeval else plan
    if not rerun and all(is_measured(project, checkpoint, public) for checkpoint in checkpoints):
        return public
    return plan.with_public_ifeval_checked(load_suites(project.base))


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
