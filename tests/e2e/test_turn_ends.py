"""A model whose generation config does not stop where its turns end, through the command line."""

import json
import shutil
from pathlib import Path

import pytest

from recovery.lab import BASE
from tests.e2e.command_line import recover

SEPARATOR, END = 0, 2


@pytest.fixture
def runs_on(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(BASE, tmp_path / "runs-on", ignore=shutil.ignore_patterns("recover.json")))
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": SEPARATOR}))
    return folder


@pytest.mark.slow
def test_the_fault_is_named_and_fixed_without_training(tmp_path: Path, runs_on: Path) -> None:
    named = recover(tmp_path, "doctor", "--model", runs_on, "--base", BASE)
    assert named.exit_code == 3, named.stderr
    (fault,) = named.data["faults"]
    assert "the generation config stops at <|endoftext|> (0) only" in fault["what"]
    assert named.data["model"]["probability"] == pytest.approx(named.data["base"]["probability"], abs=1e-4)
    assert named.data["base"]["finished"] > 0.5

    lenient = ["--set", "gate.behaviour_margin=0.5", "--set", "gate.keep_retention=0"]
    repaired = recover(tmp_path, "repair", runs_on, "--base", BASE, "--limit", 8, *lenient)
    assert repaired.exit_code == 0, repaired.stderr
    assert [move["move"] for move in repaired.data["moves"]] == ["none"]
    assert repaired.data["fixed"].endswith("<|im_end|> (2)")
    assert repaired.data["summary"].startswith("Repaired without training. ")
    exported = recover(tmp_path, "export", repaired.data["repaired"], "--to", "fixed")
    assert exported.exit_code == 0, exported.stderr
    ends = json.loads((tmp_path / "fixed" / "generation_config.json").read_text())["eos_token_id"]
    assert ends == [SEPARATOR, END]
    assert json.loads((runs_on / "generation_config.json").read_text())["eos_token_id"] == SEPARATOR


def test_a_base_without_a_model_is_refused(tmp_path: Path) -> None:
    refused = recover(tmp_path, "doctor", "--base", BASE, as_json=False)
    assert refused.exit_code == 2
    assert "--base belongs to --model" in refused.stderr
