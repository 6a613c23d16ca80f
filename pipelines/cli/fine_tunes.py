"""Commands about a model that was fine-tuned elsewhere: check and repair."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import INCONCLUSIVE, REJECTED, SUCCESS, CommandResult, command_result, main
from pipelines.cli import shared_options as options
from pipelines.cli.processes import start_processes
from pipelines.request import Request

if TYPE_CHECKING:  # these import torch
    from pipelines.repair import RepairResult

EXIT_CODES = {"passed": SUCCESS, "failed": REJECTED, "inconclusive": INCONCLUSIVE}


@main.command()
@click.argument("ref")
@options.takes_request("check")
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="Also write the result as one HTML file.")
@command_result
def check(project: Path | None, ref: str, request: Request, to: Path | None) -> CommandResult:
    """Check what a fine-tune has forgotten of its base.

    Measures instruction following, what the base knew before, and with --questions or --docs also what was learned.
    Exits with 3 if more was forgotten than the gate allows, with 0 if certainly not, with 4 if there are too few items
    to tell.

    \b
    Example: recover check ./my-finetune --base Qwen/Qwen3-8B --to check.html
    """
    from pipelines.check import check_model
    from pipelines.prepare_repair import prepare_repair
    from pipelines.project.lock import command_lock
    from pipelines.project.project import Project

    opened = Project.open(project, request.base)
    request = replace(request, student=ref)
    with command_lock(opened):
        result = check_model(opened, prepare_repair(opened, request, trains=False), ref)
    data = result.as_json()
    if to is not None:
        _write_page(to, data)
    return CommandResult(data | {"page": str(to) if to else None}, result.lines(), EXIT_CODES[data["outcome"]])


@main.command()
@click.argument("ref")
@options.takes_request("repair")
@command_result
def repair(project: Path | None, ref: str, request: Request) -> CommandResult:
    """Repair a fine-tune by the cheapest move that passes the gate.

    Tries interpolation towards the base, training on the base's answers, and on-policy distillation, and stops at the
    first that passes. --questions or --docs guard what the fine-tune learned.

    \b
    Example: recover repair ./my-finetune --base Qwen/Qwen3-8B --docs ./training.jsonl
    """
    from pipelines.prepare_repair import prepare_repair
    from pipelines.project.lock import command_lock
    from pipelines.project.project import Project
    from pipelines.repair import run_repair

    start_processes(request.processes or 1)
    opened = Project.open(project, request.base)
    request = replace(request, student=ref)
    with command_lock(opened):
        prepared = prepare_repair(opened, request)
        job = prepared.job.save(opened.home)
        notes = prepared.about.notes(opened.base_name)
        return repair_result(run_repair(opened, job, ref, notes, prepared.mended))


def repair_result(result: "RepairResult") -> CommandResult:
    return CommandResult(result.as_json(), result.lines(), SUCCESS if result.last.verdict.passed else REJECTED)


def _write_page(to: Path, data: dict[str, object]) -> None:
    from dashboard.check_page import check_page
    from recovery.errors import RecoverError

    try:
        to.write_text(check_page(data), encoding="utf-8")
    except OSError as error:
        raise RecoverError(f"Cannot write {to}: {error.strerror}. Name another file with --to.") from error
