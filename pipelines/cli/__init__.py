"""The `recover` command line. Heavy imports wait until a command runs, so that help answers at once."""

import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from pipelines.cli.thread_waiting import wait_as_fits
from pipelines.log import print_progress

wait_as_fits()

DONE, ERROR, USAGE, REJECTED, INTERRUPTED = 0, 1, 2, 3, 130

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=CONTEXT)
@click.version_option(package_name="recover", message="%(version)s")
def main() -> None:
    """Teach a language model new documents and give it back its manners.

    \b
    recover demo                       see it happen on the built-in model
    recover midtrain --docs ./corpus   teach the documents
    recover distill --teacher base     bring the behaviour back
    recover dashboard                  look at it
    """


class Answer(dict[str, Any]):
    """What a command found, as `--json` prints it, with the words for a person and the exit code beside it."""

    def __init__(self, found: dict[str, Any], words: list[str], code: int = DONE):
        super().__init__(found)
        self.words, self.code = words, code


def answers(command: Callable[..., Answer]) -> Callable[..., None]:
    """Adds `--project` and `--json`, prints the answer, says in one sentence what a user can mend."""

    @click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
    @click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
    @wraps(command)
    def run(as_json: bool, **options: Any) -> None:
        from db.errors import RecordError
        from recovery.errors import RecoverError

        _quiet()
        print_progress()
        try:
            answer = command(**options)
        except (RecoverError, RecordError) as error:
            fail(str(error), ERROR, as_json)
        except KeyboardInterrupt as left:  # whoever leaves something to go on from says so
            fail(f"interrupted; {left}" if str(left) else "interrupted", INTERRUPTED, as_json)
        except Exception as error:  # a fault of ours, or of the machine: said in a sentence, whole on request
            if os.environ.get("RECOVER_DEBUG"):
                raise
            fail(f"{type(error).__name__}: {error} (RECOVER_DEBUG=1 shows where)", ERROR, as_json)
        click.echo(json.dumps(answer, ensure_ascii=False) if as_json else "\n".join(answer.words))
        sys.exit(answer.code)

    return run


def fail(sentence: str, code: int, as_json: bool = False) -> NoReturn:
    click.echo(f"recover: {sentence}", err=True)
    if as_json:
        click.echo(json.dumps({"error": sentence}, ensure_ascii=False))
    sys.exit(code)


def _quiet() -> None:
    """Progress bars of the libraries underneath would bury our own words.

    Told before they are imported, for most commands that look at the record need none of them."""
    import warnings

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning)


# The commands register themselves with `main`.
from pipelines.cli import dashboard, data, doctor, evaluate, history, manage, train  # noqa: E402

__all__ = ["dashboard", "data", "doctor", "evaluate", "history", "main", "manage", "train"]
