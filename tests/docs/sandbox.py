"""A folder in which the code blocks of the pages run, shortened.

It has what the pages refer to: documents, questions, prompts and a fine-tuned model. Training commands stop after two
steps and measure a few items, the dashboard closes once it has opened, and `pip` and `make` only show what they would
do. A block that needs a GPU or the hub is marked after its language (```sh needs-gpu); it uses the built-in base here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer

from recovery.lab import BASE, instruction_tasks, make_world
from tests.chats import write_jsonl
from tests.e2e.command_line import run_forked

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).parent / "tools"
ON_THE_HUB = "Qwen/Qwen3-8B"
SHORT = {
    "RECOVER_MIDTRAIN__MAX_STEPS": "2",
    "RECOVER_MIDTRAIN__ROWS": "2",
    "RECOVER_MIDTRAIN__WINDOW": "128",
    "RECOVER_MIDTRAIN__GENERATED_TEXTS": "4",
    "RECOVER_DISTILL__MAX_STEPS": "2",
    "RECOVER_DISTILL__ROWS": "4",
    "RECOVER_DISTILL__PROMPTS": "8",
    "RECOVER_DISTILL__MAX_NEW_TOKENS": "32",
    "RECOVER_DISTILL__PROBE_EVERY": "0",  # otherwise it would stop before the first step, with so little to restore
}
FENCE = re.compile(r"^```(?P<language>\w*)(?: (?P<needs>needs-\w+))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"\n\n {4}\S")


@dataclass(frozen=True)
class Block:
    language: str
    needs: str | None
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["needs"], match["code"], text[: match.start()].count("\n") + 2)
        for match in FENCE.finditer(text)
    ]


def has_unfenced_code(page: Path) -> bool:
    """Whether the page has an indented or broken code block, which no test would run."""
    text = page.read_text(encoding="utf-8")
    return bool(INDENTED.search(FENCE.sub("", text))) or text.count("\n```") != 2 * len(blocks(page))


def fill_folder(folder: Path) -> None:
    world = folder / "world"
    make_world(7, size="quick").write(world)
    (world / "docs").rename(folder / "corpus")
    (world / "questions.jsonl").rename(folder / "questions.jsonl")
    world.rmdir()
    prompts = [task.prompt.replace("\n", " ") for task in instruction_tasks(7, 16, "train")]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    chats = [{"instruction": task.prompt, "output": task.answer} for task in instruction_tasks(8, 60, "train")]
    write_jsonl(folder / "training.jsonl", chats)
    shutil.copytree(BASE, folder / "my-finetune", ignore=shutil.ignore_patterns("recover.json", "README.md"))


class _Request(StreamRequestHandler):
    def handle(self) -> None:
        folder, command, environment = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(run_forked(Path(folder), command, environment)).encode() + b"\n")


@contextmanager
def command_server(socket: Path) -> Iterator[None]:
    """Runs `recover` for code blocks in processes that have the libraries loaded: a start would take seconds."""
    with ThreadingUnixStreamServer(str(socket), _Request) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


def run(block: Block, folder: Path, socket: Path) -> None:
    code = block.code.replace(ON_THE_HUB, str(BASE)).replace("vllm", "transformers") if block.needs else block.code
    command = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
    environment = _environment() | {"COMMANDS_OF_THE_TESTS": str(socket)}
    process = subprocess.run(
        [*command, code], cwd=folder, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert process.returncode == 0, (
        f"line {block.line} ended with {process.returncode}:\n{code}\n{process.stdout}\n{process.stderr}"
    )


def _environment() -> dict[str, str]:
    """The tools come first in PATH, so that they replace the programs of the same names."""
    path = os.pathsep.join([str(TOOLS), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {"PATH": path, "PYTHON_OF_THE_TESTS": sys.executable, "CHECKOUT": str(ROOT), "HF_HUB_OFFLINE": "1"}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RECOVER_")}
    return inherited | variables | SHORT
