"""The command that plans the memory of GPUs that are not there yet: plan."""

import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, main, options

if TYPE_CHECKING:  # it imports torch
    from pipelines.training_memory import GpuPlan


def _refuse_nan(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which is in every range to click
        raise click.BadParameter("nan is not a number of gigabytes.")
    return value


@main.command()
@options.of_request("base", "processes", "assignments")
@click.option(
    "--gpu-memory",
    type=click.FloatRange(0, 10_000, min_open=True),
    default=80,
    show_default=True,
    callback=_refuse_nan,
    help="Gigabytes of each GPU.",
)
@command_result
def plan(
    project: Path | None, base: str | None, processes: int | None, assignments: tuple[str, ...], gpu_memory: float
) -> CommandResult:
    """Say what memory a cycle takes of each GPU.

    It needs no GPU and no weights; the config of the base is enough. What does not fit is refused, and the message says
    what would.

    \b
    Examples: recover plan --base Qwen/Qwen3-8B
              recover plan --base Qwen/Qwen3-8B --set lora_rank=0 --processes 8
    """
    from db import name_of_base
    from pipelines.project.locations import find_root, local_base, resolve_base
    from pipelines.project.project import Project
    from pipelines.settings.resolve import resolve_settings
    from pipelines.settings.sources import read_toml
    from pipelines.training.recipe_inputs import check_processes
    from pipelines.training_memory import FULL, GpuPlan, check_window
    from recovery.models.students import parameters_of, refuse_quantised

    root = find_root(project)
    # Nothing is trained, so the base may be another than the project's.
    # A base that has to be fetched or dequantised for this is deleted again.
    home = Path(click.get_current_context().with_resource(TemporaryDirectory()))
    planned_base = local_base(resolve_base(root, base).model, home, None) if base else Project.open(root).base
    refuse_quantised(planned_base)
    # Whether this machine computes in bfloat16 says nothing about a rented one.
    default = {} if "bf16" in read_toml(root) or "RECOVER_BF16" in os.environ else {"bf16": True}
    settings = resolve_settings(parameters_of(planned_base), root, default, assignments).settings
    check_window(planned_base, settings)
    check_processes(processes or 1, settings)
    planned = GpuPlan(planned_base, base or name_of_base(planned_base), settings, processes or 1, 1e9 * gpu_memory)
    planned.check()
    data = {
        "base": planned.name,
        "parameters": planned.shape.parameters,
        "trained_parameters": planned.shape.adapter(settings.lora_rank) or planned.shape.parameters,
        "processes": planned.processes,
        "gpu_memory": round(planned.gpu_memory),
        "engine": planned.engine,
        "memory": {phase: {part: round(n) for part, n in parts.items()} for phase, parts in planned.memory.items()},
        "peak": round(planned.peak),
        "host_memory": FULL * planned.shape.parameters,  # every model is read there first
    }
    return CommandResult(data, _lines(planned, data))


def _lines(plan: "GpuPlan", data: dict[str, Any]) -> list[str]:
    from pipelines.training_memory import gigabytes, parameter_count, sums

    rank, memory = plan.settings.lora_rank, plan.memory
    trained = f"an adapter of rank {rank}, {parameter_count(data['trained_parameters'])}" if rank else "all of them"
    rows = {part: [phase.get(part, 0.0) for phase in memory.values()] for phase in memory.values() for part in phase}
    rows["together"] = list(sums(memory).values())
    lines = [
        f"Base: {plan.name}, {parameter_count(data['parameters'])}; trained: {trained}",
        f"GPUs: {plan.processes} of {gigabytes(plan.gpu_memory)}; {plan.engine} generates text",
        "",
        "{:<29} {:>14} {:>10} {:>14}".format("GB of each GPU", *memory),
    ]
    for part, sizes in rows.items():
        if any(sizes):
            cells = (f"{size / 1e9:.1f}" if size else "" for size in sizes)
            lines.append("  {:<27} {:>14} {:>10} {:>14}".format(part, *cells).rstrip())
    host = gigabytes(data["host_memory"])
    return [*lines, f"While it loads a model, each process takes {host} of its machine's memory."]
