"""The command that checks this machine: doctor."""

import json
import sys
from pathlib import Path

import click

from pipelines.cli import ERROR, SUCCESS, main
from pipelines.cli import shared_options as options


@main.command()
@options.project
@options.as_json
def doctor(project: Path | None, as_json: bool) -> None:
    """Check what this machine has for training, and how to fix gaps.

    \b
    Example: recover doctor
    """
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
