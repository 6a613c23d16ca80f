import json
import math
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

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


@pytest.mark.parametrize("command", main.commands.values(), ids=lambda command: command.name)
def test_every_option_has_a_description(command: click.Command) -> None:
    for option in command.params:
        assert isinstance(option, click.Argument) or option.help


def outcome_of(ends_with: CommandResult | BaseException, *flags: str, **environment: str) -> Result:
    """Of a command that returns this or raises it."""

    @click.command()
    @command_result
    def command(project: object) -> CommandResult:
        if isinstance(ends_with, BaseException):
            raise ends_with
        return ends_with

    return CliRunner().invoke(command, flags, env=environment)


def test_a_result_is_printed_as_lines_or_as_json() -> None:
    result = CommandResult({"answer": 42}, ["The answer is 42"], 3)
    for flags, output in (([], "The answer is 42\n"), (["--json"], '{"answer": 42}\n')):
        outcome = outcome_of(result, *flags)
        assert (outcome.stdout, outcome.stderr, outcome.exit_code) == (output, "", 3)


def test_json_is_standard_and_any_text_is_printed() -> None:
    result = CommandResult({"low": math.nan, "name": "lone \ud83d", "of\udcff": 1}, ["a file na\udcffmed by bytes"])
    assert outcome_of(result, "--json").stdout == '{"low": null, "name": "lone �", "of�": 1}\n'
    assert outcome_of(result).stdout == "a file na�med by bytes\n"
    refused = outcome_of(RecoverError("There is no na\udcffmed."), "--json")
    assert json.loads(refused.stdout) == {"error": "There is no na?med."}


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
    result = CommandResult({}, ["It is done", last])
    given = outcome_of(result, "--project", str(folder))
    assert given.stdout == f"It is done\n{last}{f' --project {shlex.quote(str(folder))}' if is_next else ''}\n"
    assert outcome_of(result).stdout == f"It is done\n{last}\n"


NOT_FOUND = "There is no run 7. List the runs with `recover runs`."
DEBUG = "Set RECOVER_DEBUG=1 to see the traceback."


@pytest.mark.parametrize(
    ("error", "message", "exit_code"),
    [
        (RecoverError(NOT_FOUND), NOT_FOUND, 1),
        (KeyboardInterrupt("Continue with `recover resume`."), "Interrupted. Continue with `recover resume`.", 130),
        (
            PermissionError(13, "Permission denied", "/there/recover.toml"),
            "You may not read or write /there/recover.toml. Change its permissions, or name another place.",
            1,
        ),
        (OSError("no connection.\nThe above has a long explanation."), f"OSError: no connection. {DEBUG}", 1),
        (ValueError("no such thing"), f"ValueError: no such thing. {DEBUG}", 1),
    ],
)
def test_an_error_is_one_sentence(error: BaseException, message: str, exit_code: int) -> None:
    outcome = outcome_of(error, "--json")
    assert (outcome.stderr, outcome.exit_code) == (f"Error: {message}\n", exit_code)
    assert json.loads(outcome.stdout) == {"error": message}


def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    @click.command()
    @command_result
    def terminated(project: object) -> NoReturn:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it goes on")

    outcome = CliRunner().invoke(terminated)
    assert (outcome.stderr, outcome.exit_code) == ("Error: Interrupted.\n", 130)


def test_the_traceback_of_an_unexpected_error_is_shown_on_request() -> None:
    assert isinstance(outcome_of(ValueError("no such thing"), RECOVER_DEBUG="1").exception, ValueError)


def test_a_mistyped_path_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pipelines.cli import main\n"
        "try:\n    main(['cycle', '--docs', './corpsu'])\n"
        "except SystemExit as ended:\n    print(ended.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "1 False\n"
    assert "There is no file or folder corpsu." in done.stderr
