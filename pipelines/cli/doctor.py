"""The command that looks at the machine: doctor."""

import json
import sys
from pathlib import Path

import click

from pipelines.cli import DONE, ERROR, main


@main.command()
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def doctor(project: Path | None, as_json: bool) -> None:
    """What this machine has for the job, what each lack costs, and how to mend it.

    \b
    Example: recover doctor
    """
    # Not through `answers`: that loads what may be the very thing that is broken.
    from pipelines.machine.doctor import can_run, examine

    findings = examine(project)
    runs = can_run(findings)
    if as_json:
        click.echo(json.dumps({"can_run": runs, "checks": [each.as_dict() for each in findings]}, ensure_ascii=False))
    else:
        widest = max(len(each.name) for each in findings)
        for each in findings:
            click.echo(f"{'ok' if each.ok else 'lacks':<6} {each.name:<{widest}}  {each.found}")
            if not each.ok:
                click.echo(f"{'':<{widest + 9}}costs: {each.costs}\n{'':<{widest + 9}}mend:  {each.mend}")
        lacking = [each.name for each in findings if each.vital and not each.ok]
        click.echo("the main job can run here" if runs else f"the main job cannot run here: {', '.join(lacking)}")
    sys.exit(DONE if runs else ERROR)
