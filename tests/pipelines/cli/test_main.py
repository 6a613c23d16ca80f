import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from pipelines.cli import SECTIONS, CommandResult, command_result, main
from recovery.errors import RecoverError

NARROW = {"COLUMNS": "80"}


def test_every_command_has_a_section_and_a_whole_line_in_the_help() -> None:
    shown = CliRunner().invoke(main, ["--help"], env=NARROW).stdout.splitlines()
    assert {name for section in SECTIONS.values() for name in section} == set(main.commands)
    for title in SECTIONS:
        assert f"{title}:" in shown
    assert "Other:" not in shown
    for name, command in main.commands.items():
        first_sentence = (command.help or "").strip().splitlines()[0]
        (line,) = [line for line in shown if line.startswith(f"  {name} ")]
        assert line.endswith(f"  {first_sentence}")
        assert len(line) <= 80


def commands() -> list[click.Command]:
    groups = [command for command in main.commands.values() if isinstance(command, click.Group)]
    return [*main.commands.values(), *(inner for group in groups for inner in group.commands.values())]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_option_has_a_description(command: click.Command) -> None:
    for option in command.params:
        assert isinstance(option, click.Argument) or option.help


@click.group()
def example() -> None: ...


@example.command()
@command_result
def good(project: object) -> CommandResult:
    return CommandResult({"answer": 42}, ["The answer is 42"], 3)


@example.command()
@click.argument("last")
@command_result
def ends_with(project: object, last: str) -> CommandResult:
    return CommandResult({}, ["It is done", last])


@example.command()
@command_result
def refused(project: object) -> NoReturn:
    raise RecoverError("There is no run 7. List the runs with `recover runs`.")


@example.command()
@command_result
def interrupted(project: object) -> NoReturn:
    raise KeyboardInterrupt("Continue with `recover resume`.")


@example.command()
@command_result
def broken(project: object) -> NoReturn:
    raise ValueError("no such thing")


@example.command()
@command_result
def broken_library(project: object) -> NoReturn:
    raise OSError("no connection.\nThe above exception has a long explanation.")


def test_a_result_is_printed_as_lines_or_as_json() -> None:
    for flags, output in (([], "The answer is 42\n"), (["--json"], '{"answer": 42}\n')):
        outcome = CliRunner().invoke(example, ["good", *flags])
        assert (outcome.stdout, outcome.stderr, outcome.exit_code) == (output, "", 3)


@pytest.mark.parametrize(
    ("last", "is_next"),
    [
        ("next: recover export cycle:1 --to ./repaired", True),
        ("Try again with more steps: recover distill --teacher base --set distill.steps=120", True),
        ("next: wait until it ends", False),
        ("cycle:1/midtrained is in /models/a: recover it", False),
    ],
)
def test_a_next_command_has_the_project_that_was_given(tmp_path: Path, last: str, is_next: bool) -> None:
    folder = tmp_path / "my project"
    given = CliRunner().invoke(example, ["ends-with", last, "--project", str(folder)])
    assert given.stdout == f"It is done\n{last}{f' --project {shlex.quote(str(folder))}' if is_next else ''}\n"
    assert CliRunner().invoke(example, ["ends-with", last]).stdout == f"It is done\n{last}\n"


@pytest.mark.parametrize(
    ("command", "message", "exit_code"),
    [
        ("refused", "There is no run 7. List the runs with `recover runs`.", 1),
        ("interrupted", "Interrupted. Continue with `recover resume`.", 130),
        ("broken-library", "OSError: no connection. Set RECOVER_DEBUG=1 to see the traceback.", 1),
        ("broken", "ValueError: no such thing. Set RECOVER_DEBUG=1 to see the traceback.", 1),
    ],
)
def test_an_error_is_one_sentence(command: str, message: str, exit_code: int) -> None:
    outcome = CliRunner().invoke(example, [command, "--json"])
    assert (outcome.stderr, outcome.exit_code) == (f"Error: {message}\n", exit_code)
    assert json.loads(outcome.stdout) == {"error": message}


def test_the_traceback_of_an_unexpected_error_is_shown_on_request() -> None:
    assert isinstance(CliRunner().invoke(example, ["broken"], env={"RECOVER_DEBUG": "1"}).exception, ValueError)


def test_a_mistyped_path_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pipelines.cli import main\n"
        "try:\n    main(['cycle', '--docs', './corpsu'])\n"
        "except SystemExit as ended:\n    print(ended.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "1 False\n"
    assert "There is no file or folder corpsu." in done.stderr


@pytest.mark.parametrize(
    ("before", "incomplete", "completed"),
    [([], "cy", "cycle"), (["cycle"], "--mi", "--mix"), (["eval", "--suite"], "beh", "behaviour")],
)
def test_commands_flags_and_choices_are_completed(before: list[str], incomplete: str, completed: str) -> None:
    items = BashComplete(main, {}, "recover", "_RECOVER_COMPLETE").get_completions(before, incomplete)
    assert [item.value for item in items] == [completed]
