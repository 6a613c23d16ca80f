"""The `recover` command line. Heavy libraries are imported inside the commands, so that `--help` answers at once."""

import errno
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from db import RecordError
from pipelines.cli import options
from pipelines.cli.environment import set_thread_waiting, silence_libraries, use_huge_pages
from pipelines.cli.processes import followers
from pipelines.log import print_progress, show, show_progress
from pipelines.project.locations import no_unused_model
from recovery.errors import RecoverError
from recovery.progress import listen

set_thread_waiting()
use_huge_pages()

SUCCESS, ERROR, REJECTED, INCONCLUSIVE, INTERRUPTED = 0, 1, 3, 4, 130  # exit codes; click exits with 2 for wrong usage

SECTIONS = {  # of the help: the commands by purpose
    "Train": ("plan", "midtrain", "distill", "cycle", "resume", "demo"),
    "A model trained elsewhere": ("check", "repair"),
    "Evaluate": ("eval", "compare", "documents", "questions", "study"),
    "Decide": ("promote", "rollback", "export"),
    "Inspect": ("status", "runs", "show", "dashboard", "report"),
    "Maintain": ("init", "doctor", "cancel", "gc"),
}
NEXT_COMMAND = re.compile(r"(next|Try again with [^:]+): recover ")
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class SectionedGroup(click.Group):
    """Lists its commands under the headings of SECTIONS."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", self.commands[name].get_short_help_str(limit)) for name in members]
                )


@click.group(cls=SectionedGroup, context_settings=CONTEXT)
@click.version_option(package_name="recover", message="%(version)s")
def main() -> None:
    """Train a language model on documents, and restore what that makes it forget.

    \b
    recover demo                        show the whole process on the built-in model
    recover cycle --docs ./corpus       train on documents, restore what was lost
    recover check MODEL --base BASE     measure what a fine-tune has forgotten
    recover repair MODEL --base BASE    restore it
    recover dashboard                   show the results
    """


@dataclass(frozen=True)
class CommandResult:
    """What a command returns: an object for `--json`, the same as lines of text, and the exit code."""

    data: dict[str, Any]
    lines: list[str]
    exit_code: int = SUCCESS


def command_result(
    command: Callable[..., CommandResult],
    project: Callable[[Callable[..., None]], Callable[..., None]] = options.project,
) -> Callable[..., None]:
    """Add `--project` and `--json` to a command, print its result, and report errors in one sentence."""

    @project
    @options.as_json
    @wraps(command)
    def run(as_json: bool, **arguments: Any) -> None:
        silence_libraries()
        print_progress()
        listen(show_progress)
        with report_errors(as_json), followers(), no_unused_model(arguments["project"]):
            result = command(**arguments)
        from db.column_types import plain_json, storable  # after the command, since it imports SQLAlchemy

        lines = _naming_project(result.lines, arguments["project"])
        try:
            text = json.dumps(plain_json(result.data), ensure_ascii=False) if as_json else storable("\n".join(lines))
            click.echo(text)
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends quietly
                raise
            fail(f"The result could not be written: {error.strerror}.", ERROR)
        sys.exit(result.exit_code)

    return run


def _naming_project(lines: list[str], project: Path | None) -> list[str]:
    """With the `--project` that was given in the next command that the last line names."""
    if project is None or not lines or not NEXT_COMMAND.match(lines[-1]):
        return lines
    return [*lines[:-1], f"{lines[-1]} --project {shlex.quote(str(project))}"]


def in_project(command: Callable[..., CommandResult]) -> Callable[..., CommandResult]:
    """Give a command the open project of its folder; raises RecoverError where there is none."""

    @wraps(command)
    def run(project: Path | None, **arguments: Any) -> CommandResult:
        from pipelines.project.project import Project

        return command(project=Project.open_existing(project), **arguments)

    return run


def check_writable(file: Path, flag: str) -> None:
    """Create the file's folder; raise if the file cannot be written there, before anything is computed for it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise RecoverError(f"Cannot write {file}: {error.strerror}. Name another file with {flag}.") from error


def write_page(file: Path, content: str) -> None:
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise RecoverError(f"Cannot write {file}: {error.strerror}. Name another file with --to.") from error


@contextmanager
def report_errors(as_json: bool = False) -> Iterator[None]:
    """Print an error as one sentence and exit; RECOVER_DEBUG=1 shows the traceback of unexpected errors."""
    try:
        with interrupted_by_sigterm():
            yield
    except click.UsageError:
        raise  # shown by click, with the usage
    except (RecoverError, RecordError) as error:
        fail(str(error), ERROR, as_json)
    except KeyboardInterrupt as interrupt:  # its text says how to continue
        fail(f"Interrupted. {interrupt}".strip(), INTERRUPTED, as_json)
    except Exception as error:
        if os.environ.get("RECOVER_DEBUG"):
            raise
        if isinstance(error, PermissionError) and error.filename:
            file = os.fsdecode(error.filename2 or error.filename)
            fail(f"You may not read or write {file}. Change its permissions, or name another place.", ERROR, as_json)
        first_line = str(error).strip().partition("\n")[0].rstrip(" .:")
        summary = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
        fail(f"{summary}. Set RECOVER_DEBUG=1 to see the traceback.", ERROR, as_json)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C, unless SIGTERM is ignored; a training handles both itself."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL or threading.current_thread() != threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def fail(message: str, exit_code: int, as_json: bool = False) -> NoReturn:
    show(f"Error: {message}\n")
    if as_json:
        click.echo(json.dumps({"error": message.encode("utf-8", "replace").decode()}, ensure_ascii=False))
    sys.exit(exit_code)


# The commands register themselves with `main`.
from pipelines.cli import decide, evaluate, inspect, maintain, study, train  # noqa: E402, F401
