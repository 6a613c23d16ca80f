"""The `recover` command line. Heavy libraries are imported inside the commands, so that `--help` answers at once."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn

import click

from pipelines.cli import shared_options as options
from pipelines.cli.help_sections import SectionedGroup
from pipelines.cli.processes import followers
from pipelines.cli.torch_environment import set_thread_waiting, use_huge_pages
from pipelines.log import print_progress
from pipelines.progress import show_progress
from pipelines.project.base import no_unused_model
from recovery.progress import listen

set_thread_waiting()
use_huge_pages()

SUCCESS, ERROR, REJECTED, INCONCLUSIVE, INTERRUPTED = 0, 1, 3, 4, 130  # exit codes; click exits with 2 for wrong usage

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=SectionedGroup, context_settings=CONTEXT)
@click.version_option(package_name="recover", message="%(version)s")
def main() -> None:
    """Train a language model on documents and restore its instruction following.

    \b
    recover demo                       run the whole process on the built-in model
    recover midtrain --docs ./corpus   train on documents
    recover distill --teacher base     restore instruction following
    recover dashboard                  show the results
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
        click.echo(json.dumps(result.data, ensure_ascii=False) if as_json else "\n".join(result.lines))
        sys.exit(result.exit_code)

    return run


@contextmanager
def report_errors(as_json: bool = False) -> Iterator[None]:
    """Print an error as one sentence and exit; RECOVER_DEBUG=1 shows the traceback of unexpected errors."""
    from db import RecordError
    from recovery.errors import RecoverError

    try:
        yield
    except (RecoverError, RecordError) as error:
        fail(str(error), ERROR, as_json)
    except KeyboardInterrupt as interrupt:  # its text says how to continue
        fail(f"Interrupted. {interrupt}".strip(), INTERRUPTED, as_json)
    except Exception as error:
        if os.environ.get("RECOVER_DEBUG"):
            raise
        first_line = str(error).strip().partition("\n")[0].rstrip(" .:")
        summary = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
        fail(f"{summary}. Set RECOVER_DEBUG=1 to see the traceback.", ERROR, as_json)


def fail(message: str, exit_code: int, as_json: bool = False) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    if as_json:
        click.echo(json.dumps({"error": message}, ensure_ascii=False))
    sys.exit(exit_code)


def silence_libraries() -> None:
    """Turn off progress bars and warnings that would bury this program's messages.

    They are environment variables, so that commands which never import these libraries need not import them here."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for library in ("TRANSFORMERS", "HF_HUB", "DATASETS"):
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning)


# The commands register themselves with `main`.
from pipelines.cli import (  # noqa: E402
    dashboard,
    data,
    doctor,
    evaluate_and_compare,
    fine_tunes,
    maintain,
    plan,
    promote_and_export,
    servers,
    status_and_runs,
    study,
    train,
)

__all__ = [
    "dashboard",
    "data",
    "doctor",
    "evaluate_and_compare",
    "fine_tunes",
    "main",
    "maintain",
    "plan",
    "promote_and_export",
    "servers",
    "status_and_runs",
    "study",
    "train",
]
