"""Runs the command line in a process of its own, as a user's shell would.

Each process is forked from a server that has imported the libraries: importing torch takes longer than most commands.
What needs a true start, such as a signal's default handling, runs the command `RECOVER`."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RECOVER = [sys.executable, "-m", "pipelines.cli"]

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.e2e.preload"])


@dataclass
class Completed:
    exit_code: int
    data: Any  # the object that --json printed, else standard output
    stderr: str

    def ended(self, *exit_codes: int) -> "Completed":
        """Itself, if the command ended with one of these exit codes."""
        assert self.exit_code in exit_codes, self.stderr
        return self


def recover(folder: Path, *arguments: object, as_json: bool = True) -> Completed:
    command = [*map(str, arguments), *(["--json"] if as_json else [])]
    exit_code, text, errors = run_forked(folder, command, {**os.environ, "COLUMNS": "100"})
    return Completed(exit_code, json.loads(text) if as_json and text.strip() else text, errors)


def run_forked(folder: Path, command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of `recover COMMAND` in this folder."""
    with forked(folder, command, environment) as (process, stdout, stderr):
        process.join()
        return process.exitcode, stdout.read_text(encoding="utf-8"), stderr.read_text(encoding="utf-8")


@contextmanager
def forked(
    folder: Path, command: list[str], environment: dict[str, str]
) -> Iterator[tuple[ForkServerProcess, Path, Path]]:
    """A process that runs `recover COMMAND` in this folder, with the files of its standard output and error."""
    with TemporaryDirectory() as output:
        stdout, stderr = Path(output, "stdout"), Path(output, "stderr")
        for file in (stdout, stderr):
            file.touch()
        process = _server.Process(target=_run, args=(folder, command, environment, stdout, stderr))
        process.start()
        yield process, stdout, stderr


def interrupt_at(line_start: str, folder: Path, *arguments: object) -> tuple[int, str]:
    """The exit code and standard error of a command that gets Ctrl-C at the line that starts so."""
    output, environment = "", {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [*RECOVER, *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stderr=subprocess.PIPE, preexec_fn=_handle_interrupts
    ) as process:
        for line in process.stderr:
            output += line
            if line.startswith(line_start):
                process.send_signal(signal.SIGINT)
    return process.returncode, output


def _handle_interrupts() -> None:
    """A process that a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(folder: Path, command: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, file in ((1, stdout), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = ["recover", *command]
    from pipelines.cli import main

    main(prog_name="recover")
