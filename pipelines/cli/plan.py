"""The command that plans a cycle on GPUs that are not there: plan."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, main, options

if TYPE_CHECKING:  # it imports torch
    from pipelines.gpu_plan import GpuPlan


class Positive(click.FloatRange):
    """A number above 0 that is finite; a range alone lets nan and inf pass."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


@main.command()
@options.of_request("docs", "base", "processes", "assignments")
@click.option("--gpu-memory", type=Positive(), default=80, show_default=True, help="Gigabytes of each GPU.")
@click.option("--price", type=Positive(), help="The price of a GPU for an hour, in any currency.")
@click.option(
    "--tokens-per-second",
    type=Positive(),
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

    It needs no GPU and no weights; the config of the base is enough. What does not fit is refused, and the message says
    what would. The speeds behind the hours are assumed.

    \b
    Examples: recover plan --base Qwen/Qwen3-8B --docs ./corpus --price 3
              recover plan --base Qwen/Qwen3-8B --docs ./corpus --set lora_rank=0 --processes 8
    """
    from pipelines.documents import read_corpus
    from pipelines.gpu_plan import GpuPlan, corpus_tokens
    from pipelines.project.project import Project
    from pipelines.settings.resolve import resolve_settings
    from pipelines.settings.sources import read_toml
    from pipelines.training_memory import check_window
    from recovery.models.students import parameters_of, refuse_quantised

    opened = Project.open(project, base)
    refuse_quantised(opened.base)
    # Whether this machine computes in bfloat16 says nothing about a rented one.
    default = {} if "bf16" in read_toml(opened.root) else {"bf16": True}
    settings = resolve_settings(parameters_of(opened.base), opened.root, default, assignments).settings
    check_window(opened.base, settings)
    tokens, counted = corpus_tokens(read_corpus(docs), opened.base)
    name, gpus = base or opened.base_name, processes or 1
    planned = GpuPlan(opened.base, name, settings, tokens, counted, gpus, 1e9 * gpu_memory, tokens_per_second, price)
    planned.check()
    return CommandResult(planned.as_json(), _lines(planned))


def _lines(plan: "GpuPlan") -> list[str]:
    from pipelines.log import duration
    from pipelines.training_memory import gigabytes, sums

    rank, memory = plan.settings.lora_rank, plan.memory
    trained = f"an adapter of rank {rank}, {_count(plan.trained_parameters)}" if rank else "all of them"
    parts = {part for phase in memory.values() for part, size in phase.items() if size}
    rows = {part: [phase.get(part, 0.0) for phase in memory.values()] for phase in memory.values() for part in phase}
    lines = [
        f"Base: {plan.name}, {_count(plan.shape.parameters)} parameters; trained: {trained}",
        f"Documents: {plan.tokens:,} tokens" + ("" if plan.is_counted else ", taken to have four characters each"),
        f"GPUs: {plan.processes} of {gigabytes(plan.gpu_memory)}; {plan.engine} generates text",
        "",
        "{:<29} {:>14} {:>10} {:>14}".format("GB of each GPU", *memory),
    ]
    for part, sizes in [*((part, rows[part]) for part in rows if part in parts), ("together", sums(memory).values())]:
        cells = (f"{size / 1e9:.1f}" if size else "" for size in sizes)
        lines.append("  {:<27} {:>14} {:>10} {:>14}".format(part, *cells).rstrip())
    lines += [f"While it loads a model, each process takes {gigabytes(plan.host_memory)} of its machine's memory.", ""]
    lines += [f"{duration(seconds):>8}  {name}" for name, seconds in plan.stages]
    cost = "" if plan.cost is None else f", {plan.cost:,.2f} at {plan.price:g} an hour for each GPU"
    lines += [f"{duration(plan.seconds):>8}  together{cost}", ""]
    lines += ["GPUs  GB of each      time" + "        cost" * (plan.price is not None) + "  text by"]
    for other in plan.by_gpu_count():
        cost = "" if other.cost is None else f"{other.cost:>12,.2f}"
        note = other.engine if other.fits else "does not fit"
        lines.append(f"{other.processes:>4}  {other.peak / 1e9:>10.1f}  {duration(other.seconds):>8}{cost}  {note}")
    return [*lines, "", *plan.assumptions]


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e8 else f"{parameters / 1e6:.1f} million"
