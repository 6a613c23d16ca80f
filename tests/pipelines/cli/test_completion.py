"""What a shell is told when a user presses Tab."""

import subprocess
import sys

from click.shell_completion import BashComplete

from pipelines.cli import main


def completed(*words: str) -> list[str]:
    *before, begun = words
    found = BashComplete(main, {}, "recover", "_RECOVER_COMPLETE").get_completions(before, begun)
    return [each.value for each in found]


def test_commands_flags_and_choices_are_completed() -> None:
    assert completed("cy") == ["cycle"]
    assert completed("cycle", "--mi") == ["--mix"]
    assert completed("eval", "--suite", "beh") == ["behaviour"]


def test_a_look_that_needs_no_model_imports_no_model_library() -> None:
    """Or every Tab and every `recover status` would take seconds."""
    looked = (
        "import sys; from pipelines.cli import main; main(['status', '--project', '/nowhere'], standalone_mode=False)"
    )
    asked = f"""
import atexit, sys
atexit.register(lambda: print(*(name for name in ("torch", "transformers", "numpy") if name in sys.modules)))
{looked}
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert "no project here yet" in done.stdout
    assert done.stdout.splitlines()[-1] == ""
