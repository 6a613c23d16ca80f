"""Commands that decide which checkpoint is current and hand it on: promote, rollback, export."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, in_project, main, options
from pipelines.log import log
from pipelines.storage import is_remote

if TYPE_CHECKING:
    from pipelines.project.project import Project

WHY = "Why, for the project's history"


class _FolderOrAddress(options.NotEmpty, click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_address = isinstance(value, str) and is_remote(value)
        return value if is_address else super().convert(value, param, ctx)


@main.command()
@click.argument("ref")
@click.option("--reject", is_flag=True, help="Reject the checkpoint instead.")
@click.option("--reason", default="", help=f"{WHY}; needed against the gate's verdict.")
@options.dry_run
@command_result
@in_project
def promote(project: "Project", ref: str, reject: bool, reason: str, dry_run: bool) -> CommandResult:
    """Make a checkpoint current, or reject it.

    This is a person's decision: it is stored with its reason. Against the gate's verdict it needs one.

    \b
    Example: recover promote cycle:3 --reason "read fifty answers, they are fine"
    """
    from db.tables import Decision
    from pipelines.gate.promotion import check_decision, decide

    checkpoint = project.find(ref, known=True) if reject else project.resolve(ref, store=not dry_run)
    decision: Decision = "rejected" if reject else "promoted"
    if dry_run:
        check_decision(project, checkpoint, decision, reason)
    else:
        decide(project, checkpoint, decision, reason)
    current = project.recorded_current.reference
    data = {"checkpoint": checkpoint.reference, "decision": decision, "current": current, "dry_run": dry_run}
    verb = f"would be {decision}" if dry_run else f"is {decision}"
    return CommandResult(data, [f"{checkpoint.reference} {verb}; the current checkpoint is {current}"])


@main.command()
@click.option("--reason", default="", help=f"{WHY}.")
@options.dry_run
@command_result
@in_project
def rollback(project: "Project", reason: str, dry_run: bool) -> CommandResult:
    """Return to the previously current checkpoint.

    \b
    Example: recover rollback --reason "it forgot the tables"
    """
    from pipelines.gate.promotion import roll_back

    current, previous = roll_back(project, reason, dry_run=dry_run)
    data = {"from": current.reference, "current": previous.reference, "dry_run": dry_run}
    verb = "Would return" if dry_run else "Returned"
    return CommandResult(data, [f"{verb} from {current.reference} to {previous.reference}"])


@main.command()
@click.argument("ref", default="current")
@click.option(
    "--to", type=_FolderOrAddress(path_type=Path, file_okay=False), required=True,
    help="The folder to write, here or in an object store (s3://bucket/folder).",
)  # fmt: skip
@click.option("--adapter", is_flag=True, help="Write the adapter by itself, not merged into its base.")
@command_result
@in_project
def export(project: "Project", ref: str, to: Path | str, adapter: bool) -> CommandResult:
    """Export a checkpoint as a folder that other tools load.

    The folder has safetensors, a tokenizer, and a model card with scores and lineage.

    \b
    Example: recover export current --to ./my-model
    """
    from pipelines.project.export import export_checkpoint

    checkpoint = project.resolve(ref)
    if ref == "current" and checkpoint.role == "base":
        log.warning(
            "No trained model is current, so this exports the base. `recover runs` lists the checkpoints, such as run:3"
        )
    kind = export_checkpoint(project, checkpoint, to, adapter=adapter)
    data = {"checkpoint": checkpoint.reference, "path": str(to.resolve() if isinstance(to, Path) else to), "kind": kind}
    return CommandResult(data, [f"{checkpoint.reference} is in {to} ({kind} weights)"])
