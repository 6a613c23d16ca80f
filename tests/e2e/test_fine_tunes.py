"""`recover check` and `recover repair` in an empty folder, with two paths and no configuration."""

import re
from pathlib import Path

import pytest
import torch

from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from tests.e2e.command_line import interrupt_at, recover
from tests.pipelines.options import SMALL_DISTILLATION, set_options


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model with noise on its weights, as no training would leave it."""
    folder = tmp_path_factory.mktemp("models") / "damaged"
    student = load_student(str(BASE))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in student.trainable():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.4 * parameter.std() * noise)
    save_student(student, folder, {})
    return folder


@pytest.mark.slow
def test_a_damaged_model_is_found_and_repaired_by_the_cheapest_move(tmp_path: Path, damaged: Path) -> None:
    data = recover(tmp_path, "check", damaged, "--limit", "40", "--to", "page.html").ended(3).data
    assert data["outcome"] == "failed"
    assert data["summary"].startswith(f"{damaged} has forgotten more than the gate allows: ")
    first = data["forgotten"][0]
    assert first["name"] == "instruction following"
    assert first["difference"] < -0.1
    assert first["ci95"][1] < 0
    assert "forgotten more than the gate allows" in (tmp_path / "page.html").read_text()

    lenient = set_options("gate.behaviour_margin=0.25", "gate.keep_retention=0.6", "distill.probe_items=16")
    options = ["--limit", "40", *lenient]
    repaired = recover(tmp_path, "repair", damaged, *options).ended(0)
    assert [move["move"] for move in repaired.data["moves"]] == ["none", "interpolation"]
    assert repaired.data["moves"][1]["steps"] == 0
    assert repaired.data["moves"][1]["share"] > 0
    assert repaired.data["guarded_by"] is None
    assert repaired.data["moves"][1]["scores"]["behaviour"] > repaired.data["before"]["behaviour"]
    again = recover(tmp_path, "repair", damaged, *options)
    assert again.data["moves"] == repaired.data["moves"], "a finished repair is not computed again"
    more = recover(tmp_path, "repair", damaged, "--limit", "50", *lenient).ended(0)
    assert [move["checkpoint"] for move in more.data["moves"]] == [move["checkpoint"] for move in again.data["moves"]]
    assert more.data["moves"][1]["verdict"]["behaviour"]["n"] > again.data["moves"][1]["verdict"]["behaviour"]["n"]
    recover(tmp_path, "export", repaired.data["repaired"], "--to", "repaired").ended(0)


@pytest.mark.release
def test_an_interrupted_repair_goes_on_and_repeats_no_move(tmp_path: Path, damaged: Path) -> None:
    settings = [*SMALL_DISTILLATION, *set_options("distill.steps=12", "gate.behaviour_margin=0.001")]  # no move passes
    code, output = interrupt_at("  step 2/12", tmp_path, "repair", damaged, "--limit", 6, *settings)
    message = "Error: Interrupted. Go on from the last saved state with `recover resume`."
    assert (code, output.splitlines()[-1]) == (130, message)
    before = recover(tmp_path, "runs", "--limit", 50).data["runs"]
    unfinished = [run["run"] for run in before if run["status"] != "done"]
    assert len(unfinished) == 1

    resumed = recover(tmp_path, "resume").ended(3)
    assert re.search(r"Going on at step \d+ of 12", resumed.stderr)
    assert [move["move"] for move in resumed.data["moves"]] == ["none", "interpolation", "answers", "average", "opd"]
    assert [move["steps"] for move in resumed.data["moves"]] == [0, 0, 12, 0, 12]
    answers, average = (move["checkpoint"] for move in resumed.data["moves"][2:4])
    lineage = recover(tmp_path, "show", average).data["lineage"]
    assert [ancestor["checkpoint"] for ancestor in lineage[:2]] == [average, answers]
    after = {run["run"]: run for run in recover(tmp_path, "runs", "--limit", 50).data["runs"]}
    distilled = [run for run in after.values() if run["kind"] == "distill"]
    assert [run["status"] for run in distilled] == ["done"] * 4
    assert after[unfinished[0]]["kind"] == "distill"
    finished = {run["run"]: run["seconds"] for run in before if run["run"] != unfinished[0]}
    assert {number: after[number]["seconds"] for number in finished} == finished, "earlier runs were not repeated"
    assert recover(tmp_path, "resume").exit_code == 1, "nothing is left to do"
