"""Shell completion, and how little the commands import that need no model."""

import subprocess
import sys

from click.shell_completion import BashComplete

from pipelines.cli import main


def completions(*arguments: str) -> list[str]:
    *before, incomplete = arguments
    items = BashComplete(main, {}, "recover", "_RECOVER_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in items]


def test_commands_flags_and_choices_are_completed() -> None:
    assert completions("cy") == ["cycle"]
    assert completions("cycle", "--mi") == ["--mix"]
    assert completions("eval", "--suite", "beh") == ["behaviour"]


def test_a_command_that_needs_no_model_imports_no_model_library() -> None:
    """Otherwise every Tab and every `recover status` would take seconds."""
    code = """
import atexit, sys
from pipelines.cli import main
heavy = ("torch", "transformers", "numpy")
atexit.register(lambda: print([name for name in heavy if name in sys.modules]))
main(["status", "--project", "/nowhere"], standalone_mode=False)
"""
    status = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no project here yet" in status.stdout
    assert status.stdout.splitlines()[-1] == "[]"
