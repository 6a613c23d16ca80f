"""The command that checks this machine, or how a model ends its turns: doctor."""

import json
import sys
from pathlib import Path

import click

from pipelines.cli import ERROR, REJECTED, SUCCESS, CommandResult, command_result, main
from pipelines.cli import shared_options as options


@main.command()
@options.project
@click.option(
    "--model", metavar="REF", help="Check a model instead: how it ends a turn, and why its replies may run on."
)
@click.option("--base", metavar="REF", help="The model that it was trained from, which is shown beside it.")
@options.as_json
def doctor(project: Path | None, model: str | None, base: str | None, as_json: bool) -> None:
    """Check what this machine has for training, and how to fix gaps.

    With --model, check how a model ends its turns. Exits with 3 if it has a fault that makes replies run on.

    \b
    Example: recover doctor
    Example: recover doctor --model ./my-finetune --base Qwen/Qwen3-8B
    """
    if model is not None:
        _examine_model(project=project, model=model, base=base, as_json=as_json)
        return
    if base is not None:
        raise click.UsageError("--base belongs to --model. Name the model to check.")
    # Without `command_result`, which imports libraries that may be broken.
    from pipelines.machine.checks import can_run, examine

    findings = examine(project)
    runs = can_run(findings)
    if as_json:
        checks = [finding.as_dict() for finding in findings]
        click.echo(json.dumps({"can_run": runs, "checks": checks}, ensure_ascii=False))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{'ok' if finding.ok else 'missing':<8} {finding.name:<{width}}  {finding.detail}")
            if not finding.ok:
                click.echo(f"{'':<{width + 11}}impact: {finding.impact}\n{'':<{width + 11}}fix:    {finding.fix}")
        required = [finding.name for finding in findings if finding.required and not finding.ok]
        click.echo("Training can run here" if runs else f"Training cannot run here: {', '.join(required)}")
    sys.exit(SUCCESS if runs else ERROR)


@command_result
def _examine_model(project: Path | None, model: str, base: str | None) -> CommandResult:
    from pipelines.project.project import Project
    from pipelines.turn_ends import examine_turn_ends

    opened = Project.open(project, base)
    has_base = base is not None or opened.row is not None
    ends = examine_turn_ends(opened.path_of(model), opened.base if has_base else None)
    return CommandResult(ends.as_json(), ends.lines(), REJECTED if ends.faults else SUCCESS)
