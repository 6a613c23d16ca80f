"""The command that plans a cycle on GPUs that are not there: plan."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import CommandResult, command_result, main
from pipelines.cli import shared_options as options

if TYPE_CHECKING:  # it imports torch
    from pipelines.estimates.training_plan import Plan

POSITIVE = click.FloatRange(min=0, min_open=True)


@main.command()
@options.combine(options.docs, options.base, options.processes, options.assignments)
@click.option("--gpu-memory", type=POSITIVE, default=80, show_default=True, help="Gigabytes of each GPU.")
@click.option("--price", type=POSITIVE, help="The price of a GPU for an hour, in any currency.")
@click.option(
    "--tokens-per-second",
    type=POSITIVE,
    help="How fast a GPU mid-trains this model [default: from an assumed speed, which is shown]",
)
@command_result
def plan(
    project: Path | None,
    docs: Path,
    base: str | None,
    processes: int | None,
    assignments: tuple[str, ...],
    gpu_memory: float,
    price: float | None,
    tokens_per_second: float | None,
) -> CommandResult:
    """Plan a cycle on GPUs: their memory, hours and cost.

    Needs no GPU and no weights: the config of the base is enough. Refuses what does not fit, and says what would.

    \b
    Examples: recover plan --base Qwen/Qwen3-8B --docs ./corpus --price 3
              recover plan --base Qwen/Qwen3-8B --docs ./corpus --set lora_rank=0 --processes 8
    """
    from pipelines.documents import read_corpus
    from pipelines.estimates.training_plan import Plan, corpus_tokens
    from pipelines.machine.memory_check import check_window
    from pipelines.project.project import Project
    from pipelines.settings.resolve import resolve_settings
    from recovery.models.students import parameters_of, refuse_quantised

    opened = Project.open(project, base)
    refuse_quantised(opened.base)
    # Whether this machine computes in bfloat16 says nothing about a rented one.
    settings, _ = resolve_settings(parameters_of(opened.base), opened.root, {"bf16": True}, assignments)
    check_window(opened.base, settings)
    tokens, counted = corpus_tokens(read_corpus(docs), opened.base)
    planned = Plan(opened.base, settings, tokens, counted, processes or 1, 1e9 * gpu_memory, tokens_per_second, price)
    planned.check()
    data = planned.as_json() | {"base": opened.base_name}
    return CommandResult(data, _lines(planned, opened.base_name))


def _lines(plan: "Plan", base: str) -> list[str]:
    from pipelines.estimates.training_plan import gigabytes, gpus
    from pipelines.progress import duration

    trained = plan.trained_parameters
    method = f"an adapter of rank {plan.settings.lora_rank}" if plan.settings.lora_rank else "all weights"
    lines = [
        f"{base}: {plan.shape.parameters / 1e9:.2f} billion parameters; trained: {method}, {trained / 1e9:.2f} billion",
        f"Documents: {plan.tokens:,} tokens{'' if plan.is_counted else ', at four characters each'}",
        f"{gpus(plan.processes)} of {gigabytes(plan.gpu_memory)}; text is generated with {plan.engine}",
        "",
        f"{'memory of each GPU, GB':<32} {'loading':>8} {'in a step':>10} {'between steps':>14}",
    ]
    for name, *phases in plan.memory.rows():
        loading, step, between = (f"{value / 1e9:.1f}" if value else "" for value in phases)
        lines.append(f"  {name:<30} {loading:>8} {step:>10} {between:>14}")
    lines += [f"Of the machine's memory, each process takes {gigabytes(plan.host_memory)} while it loads a model", ""]
    lines += [f"{duration(seconds):>8}  {name}" for name, seconds in plan.stages]
    cost = "" if plan.cost is None else f", {plan.cost:,.2f} at {plan.price:g} for a GPU and hour"
    lines += [f"Together {plan.hours:.1f} hours on {gpus(plan.processes)}{cost}", ""]
    lines += ["  GPUs  of each   hours" + "      cost" * (plan.price is not None)]
    for other in plan.others():
        cost = "" if other.cost is None else f"{other.cost:>10,.2f}"
        note = "" if other.fits else "  does not fit"
        peak = gigabytes(other.memory.peak)
        lines.append(f"{other.processes:>6} {peak:>8} {other.hours:>7.1f}{cost}{note}")
    return [*lines, "", *plan.assumptions]
