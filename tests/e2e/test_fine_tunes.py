"""`recover check` and `recover repair` in an empty folder, with two paths and no configuration."""

from pathlib import Path

import pytest
import torch

from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from tests.e2e.command_line import recover


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model with noise on its weights, as no training would leave it."""
    folder = tmp_path_factory.mktemp("models") / "damaged"
    student = load_student(str(BASE))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in student.trainable():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.6 * parameter.std() * noise)
    save_student(student, folder, {})
    return folder


@pytest.mark.slow
def test_a_damaged_model_is_found_and_repaired_by_the_cheapest_move(tmp_path: Path, damaged: Path) -> None:
    checked = recover(tmp_path, "check", damaged, "--limit", "100", "--to", "page.html")
    assert checked.exit_code == 3, checked.stderr
    data = checked.data
    assert data["outcome"] == "failed"
    assert data["summary"].startswith(f"{damaged} has forgotten more than the gate allows: instruction following is ")
    first = data["forgotten"][0]
    assert first["name"] == "instruction following"
    assert first["difference"] < -0.1
    assert first["ci95"][1] < 0
    assert "forgotten more than the gate allows" in (tmp_path / "page.html").read_text()

    options = ["--limit", "100", "--set", "gate.behaviour_margin=0.15", "--set", "gate.keep_retention=0.6",
               "--set", "distill.probe_items=20"]  # fmt: skip
    repaired = recover(tmp_path, "repair", damaged, *options)
    assert repaired.exit_code == 0, repaired.stderr
    assert [move["move"] for move in repaired.data["moves"]] == ["none", "interpolation"]
    assert repaired.data["moves"][1]["steps"] == 0
    assert repaired.data["moves"][1]["share"] > 0
    assert repaired.data["guarded_by"] is None
    assert repaired.data["moves"][1]["scores"]["behaviour"] > repaired.data["before"]["behaviour"]
    again = recover(tmp_path, "repair", damaged, *options)
    assert again.data["moves"] == repaired.data["moves"], "a finished repair is not computed again"
    exported = recover(tmp_path, "export", repaired.data["repaired"], "--to", "repaired")
    assert exported.exit_code == 0, exported.stderr


def test_a_model_like_its_base_is_certainly_within_the_limits(tmp_path: Path) -> None:
    completed = recover(tmp_path, "check", BASE, "--base", BASE, "--limit", "4", as_json=False)
    assert completed.exit_code == 4, "four items cannot tell"
    assert "There are too few items to tell" in completed.data
    assert "nothing was trained" in completed.data
