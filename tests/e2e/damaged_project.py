"""A project whose built-in model has read documents alone: what attempts, repairs and decisions start from.

It is trained once for all processes of a test session; every test gets a copy.
"""

import json
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from recovery.lab import make_world
from tests.e2e.command_line import Completed, recover

WORLD = 77
PRINTED = "midtrain.json"  # the last file to be written


def _train(folder: Path) -> None:
    make_world(WORLD, size="quick").write(folder / "corpus")
    files = ["--docs", "corpus/docs", "--questions", "corpus/questions.jsonl"]
    short = ["--set", "midtrain.rows=8", "--max-steps", 32]
    completed = recover(folder, "midtrain", *files, "--mix", "documents", *short).ended(0)
    (folder / PRINTED).write_text(json.dumps(vars(completed)), encoding="utf-8")


@pytest.fixture(scope="session")
def trained_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only to be copied."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # of all processes of this session
    folder = shared / "damaged-project"
    with FileLock(f"{folder}.lock"):
        if not (folder / PRINTED).exists():
            _train(folder)
    return folder


@pytest.fixture(scope="module")
def damaged_project(trained_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(trained_project, tmp_path_factory.mktemp("damaged") / "project")


def midtraining_of(folder: Path) -> Completed:
    """What the command that damaged the model printed."""
    return Completed(**json.loads((folder / PRINTED).read_text(encoding="utf-8")))
