"""A cycle distils only if the gate does not promote the mid-trained model as it is, where the settings say so."""

from pathlib import Path
from typing import Any

import pytest

from recovery.lab import make_world
from tests.e2e.command_line import Completed, recover
from tests.e2e.test_attempts import LENIENT, SMALL, STRICT
from tests.pipelines.options import set_options

pytestmark = pytest.mark.slow


def cycle(folder: Path, *limits: Any) -> Completed:
    make_world(5, size="small").write(folder / "world")
    files = ["--docs", "world/docs", "--questions", "world/questions.jsonl", "--mix", "documents"]
    if_needed = set_options("distill.if_needed=true")
    return recover(folder, "cycle", *files, "--max-steps", 2, "--limit", 12, *SMALL, *if_needed, *limits)


def test_a_copy_of_a_mid_trained_model_that_passes_is_promoted(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *LENIENT)
    assert completed.exit_code == 0, completed.stderr
    data = completed.data
    assert data["promoted"]
    assert data["steps"] == 0
    assert data["recovered"] == data["damaged"]
    (promoted,) = recover(tmp_path, "status").data["cycles"]
    assert promoted["recovered"] == data["recovered"], "which later cycles must keep"
    assert promoted["recovered"]["knowledge"] is not None
    assert completed.stderr.count("Measuring") == 2
    weights = [next(Path(path).glob("*.safetensors")).read_bytes() for path in _checkpoints(tmp_path)]
    assert weights[0] == weights[1]
    again = recover(tmp_path, "eval", "cycle:1/recovered", "--questions", "world/questions.jsonl", "--limit", 12)
    assert "Measuring" not in again.stderr


def test_one_that_does_not_pass_is_distilled(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *STRICT)
    assert completed.data["steps"] == 2, completed.stderr


def test_a_copy_that_does_not_pass_is_not_measured_again(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *STRICT, *set_options("distill.steps=0", "distill.warm_start=off"))
    assert completed.exit_code == 3, completed.stderr
    assert completed.data["steps"] == 0
    assert completed.data["recovered"] == completed.data["damaged"]
    assert completed.stderr.count("Measuring") == 2


def test_what_a_recipe_teaches_besides_is_taught_in_any_case(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *LENIENT, "--recipe", "self-sft")
    assert completed.data["steps"] == 2, completed.stderr


def _checkpoints(folder: Path) -> list[str]:
    shown = recover(folder, "lineage", "cycle:1/recovered").data
    return [one["path"] for one in shown["lineage"][:2]]
