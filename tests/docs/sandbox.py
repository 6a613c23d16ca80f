"""A folder in which the pages' blocks run as a reader would run them, only shorter.

What a reader has at hand is there: documents, questions, prompts, a fine-tune. Commands that train stop after two
steps and measure a few items, pages close once they have opened, installations are resolved and not made, and `make`
says what it would do (CI does that for real). A block that needs a GPU or the hub gets the built-in base instead.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from recovery.lab import BASE, instruction_tasks, make_world
from tests.docs.blocks import Block

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).parent / "tools"
ON_THE_HUB = "Qwen/Qwen3-8B"
SHORT = {
    "RECOVER_MIDTRAIN__MAX_STEPS": "2",
    "RECOVER_MIDTRAIN__RECOLLECTIONS": "24",
    "RECOVER_DISTILL__MAX_STEPS": "2",
    "RECOVER_DISTILL__ROWS": "8",
    "RECOVER_DISTILL__PROMPTS": "16",
    "RECOVER_DISTILL__MAX_NEW_TOKENS": "32",
    "RECOVER_DISTILL__PROBE_EVERY": "0",  # else it would stop before it begins, with so little to bring back
}


def furnish(folder: Path) -> None:
    make_world(7, size="quick").write(folder / "made")
    (folder / "made" / "docs").rename(folder / "corpus")
    (folder / "made" / "questions.jsonl").rename(folder / "questions.jsonl")
    (folder / "made").rmdir()
    prompts = [task.prompt.replace("\n", " ") for task in instruction_tasks(7, 16, "train")]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    shutil.copytree(BASE, folder / "my-finetune", ignore=shutil.ignore_patterns("recover.json", "README.md"))


def run(block: Block, folder: Path) -> None:
    code = block.code.replace(ON_THE_HUB, str(BASE)).replace("vllm", "transformers") if block.needs else block.code
    command = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
    done = subprocess.run(
        [*command, code], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, (
        f"line {block.line} ended with {done.returncode}:\n{code}\n{done.stdout}\n{done.stderr}"
    )


def _environment() -> dict[str, str]:
    """The tools stand before the programs they stand for."""
    path = os.pathsep.join([str(TOOLS), str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"PATH": path, "PYTHON_OF_THE_TESTS": sys.executable, "CHECKOUT": str(ROOT), "HF_HUB_OFFLINE": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RECOVER_")}
    return kept | ours | SHORT
