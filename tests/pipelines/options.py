"""The command line in this process, what it printed, and options that several tests use."""

import json
from typing import Any

from click.testing import CliRunner, Result

from pipelines.cli import main
from pipelines.project.project import Project


def recover(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def data_of(completed: Result, *exit_codes: int) -> dict[str, Any]:
    """What a command with --json printed that ended with 0, or with one of these exit codes."""
    assert completed.exit_code in (exit_codes or (0,)), completed.stderr
    data: dict[str, Any] = json.loads(completed.stdout)
    return data


def error_of(refused: Result) -> str:
    """What a command with --json that was refused gave as the reason."""
    return str(data_of(refused, 1)["error"])


def refusal(*arguments: object) -> str:
    """What a command that was refused printed on standard error."""
    refused = recover(*arguments)
    assert refused.exit_code == 1, refused.output
    return refused.stderr


def answer(project: Project, *arguments: object) -> Any:
    """What a command in this project prints with --json, whether it succeeds or not."""
    return json.loads(recover(*arguments, "--json", "--project", project.root).stdout)


def set_options(*assignments: str) -> list[str]:
    """`--set` before each assignment."""
    return [argument for assignment in assignments for argument in ("--set", assignment)]


SMALL_DISTILLATION = set_options(
    *("distill.rows=4", "distill.prompts=16", "distill.max_new_tokens=32", "distill.probe_every=0")
)
