"""The commands that look at models: eval, compare."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pipelines.cli import Answer, answers, main, options

suite = click.option(
    "--suite",
    type=click.Choice(["behaviour", "knowledge", "retention", "all"]),
    default="all",
    show_default=True,
    help="What to measure.",
)
again = click.option("--again", is_flag=True, help="Measure even what is on record.")
measured = options.together(suite, options.limit, options.ifeval_data, options.questions, options.engine, again)


@main.command("eval")
@click.argument("ref", default="current")
@options.base
@measured
@answers
def evaluate(project: Path | None, ref: str, base: str | None, **wanted: Any) -> Answer:
    """Measure one checkpoint and put it on record; what is on record already is not measured again.

    \b
    Example: recover eval current --suite behaviour --limit 200
    """
    from pipelines.evaluation.tables import describe_cost
    from pipelines.project.project import Project

    opened = Project.open(project, base)
    checkpoint = opened.resolve(ref)
    results = _results(opened, checkpoint, ref, _measures(opened, [checkpoint], wanted), wanted)
    words = []
    for result in results:
        words.append(f"{result.task} ({result.suite}, {result.data}, {len(result.items)} items)")
        words.append(f"  took {describe_cost(result.seconds, result.cost)}")
        for name, metric in result.metrics.items():
            low, high = metric.ci95
            interval = f"[{low:.3f}, {high:.3f}]" if metric.n > 1 else "-"
            words.append(f"  {name:<34} {metric.value:.3f}  {interval}  n = {metric.n}")
    return Answer({"checkpoint": ref, "evaluations": [r.to_json() for r in results]}, words)


@main.command()
@click.argument("one")
@click.argument("other")
@measured
@click.option("--drift", is_flag=True, help="Besides, how far each of the two is from the clean base.")
@answers
def compare(project: Path | None, one: str, other: str, drift: bool, **wanted: Any) -> Answer:
    """Two checkpoints on the same items: what was lost, what was gained, and could it be chance.

    Where the clean base was measured by the same, also what each has forgotten of it, and how much came back.

    \b
    Example: recover compare base current
    """
    from pipelines.evaluation.compare import compare_results, mean_forgetting, mean_lines
    from pipelines.evaluation.results_store import comparable_results
    from pipelines.evaluation.tables import drift_table
    from pipelines.project.project import Project

    opened = Project.open(project)
    both = {ref: opened.resolve(ref) for ref in (one, other)}  # before a name that means nothing can cost anything
    measures = _measures(opened, list(both.values()), wanted)
    first, second = (_results(opened, both[ref], ref, measures, wanted) for ref in (one, other))
    found = compare_results(first, second, comparable_results(opened, opened.clean, first))
    means = mean_forgetting(found)
    words = [f"{one} → {other}", *(line for c in found for line in c.lines()), *mean_lines(means)]
    drifts = _drifts(opened, [both[ref] for ref in (one, other)], wanted) if drift else None
    if drifts:
        words += drift_table((one, other), *drifts)
    told: dict[str, Any] = {
        "first": one,
        "second": other,
        "tasks": [c.as_json() for c in found],
        **means,
        "drift": None,
    }
    if drifts:
        told["drift"] = {side: [r.to_json() for r in of] for side, of in zip(("first", "second"), drifts, strict=True)}
    return Answer(told, words)


def _measures(opened: Any, checkpoints: list[Any], wanted: dict[str, Any]) -> Any:
    """Where all were asked in public before, the record answers, whether or not that can be reached now."""
    from evals.suites.config import load_suites
    from pipelines.evaluation.measure import is_measured
    from pipelines.evaluation.plan import EvalPlan

    asked = EvalPlan(**{each: wanted[each] for each in ("suite", "questions", "ifeval_data", "limit")})
    in_public = replace(asked, public_ifeval=True) if asked.may_use_public_ifeval else asked
    if not wanted["again"] and all(is_measured(opened, each, in_public) for each in checkpoints):
        return in_public
    return asked.with_public_ifeval_checked(load_suites(opened.base))


def _results(opened: Any, checkpoint: Any, name: str, measures: Any, wanted: dict[str, Any]) -> Any:
    from pipelines.evaluation.measure import measure_checkpoint

    engine = wanted["engine"] or "transformers"
    return measure_checkpoint(opened, checkpoint, measures, None, name, engine=engine, rerun=wanted["again"])


def _drifts(opened: Any, both: list[Any], wanted: dict[str, Any]) -> list[Any]:
    from pipelines.evaluation.drift import checkpoint_drift, new_task

    task, engine = new_task(opened, both, wanted["questions"]), wanted["engine"] or "transformers"
    how = {"ifeval_data": wanted["ifeval_data"], "engine": engine, "rerun": wanted["again"]}
    return [checkpoint_drift(opened, checkpoint, task, **how) for checkpoint in both]
