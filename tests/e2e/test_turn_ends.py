from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.lab import BASE
from recovery.stop_contract import StopFiles, missing_end
from tests.e2e.command_line import Completed, recover
from tests.pipelines.options import set_options
from tests.stop_contracts import (
    END,
    copy_of_base,
    end_with_a_new_token,
    mask_the_end_as_padding,
    overwrite_the_row,
    stop_at_the_separator_only,
    stop_nowhere,
    write_no_end,
)

ANYTHING_PASSES = set_options("gate.behaviour_margin=1", "gate.keep_retention=0")
SHORT = set_options("distill.max_new_tokens=64", "distill.rows=16", "distill.prompts=256", "distill.probe_every=0")


def repair(folder: Path, model: Path, *more: str) -> Completed:
    return recover(folder, "repair", model, "--base", BASE, "--limit", 4, *ANYTHING_PASSES, *more)


@pytest.mark.slow
def test_the_fault_is_named(tmp_path: Path) -> None:
    runs_on = copy_of_base(tmp_path / "runs-on")
    stop_at_the_separator_only(runs_on)
    named = recover(tmp_path, "doctor", "--model", runs_on, "--base", BASE).ended(3)
    (fault,) = named.data["faults"]
    assert "the generation config stops at <|endoftext|> (0) only" in fault["what"]
    assert named.data["model"]["probability"] == pytest.approx(named.data["base"]["probability"], abs=1e-4)
    assert named.data["base"]["finished"] > 0.5
    shown = recover(tmp_path, "doctor", "--model", runs_on, "--base", BASE, as_json=False).ended(3).data
    assert shown.splitlines()[-1] == f"next: recover repair {runs_on} --base {BASE}"
    checked = recover(tmp_path, "check", runs_on, "--base", BASE, "--limit", 4, *ANYTHING_PASSES).ended(3).data
    assert checked["outcome"] == "passed"
    assert "could do. Its turns do not end as they should: Turns end with" in checked["summary"]
    assert checked["turn_ends"]["faults"] == [fault]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(stop_at_the_separator_only, marks=pytest.mark.slow, id="stop at the separator only"),
        pytest.param(stop_nowhere, marks=pytest.mark.release, id="stop nowhere"),
        pytest.param(write_no_end, marks=pytest.mark.slow, id="write no end"),
        pytest.param(end_with_a_new_token, marks=pytest.mark.slow, id="end with a new token"),
    ],
)
def test_a_copy_with_other_files_is_enough(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = copy_of_base(tmp_path / "broken")
    damage(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    repaired = repair(tmp_path, folder).ended(0)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before, "the original is unchanged"
    (none,) = repaired.data["moves"]
    assert repaired.data["summary"] == "Repaired without training."
    assert repaired.data["fixed"].endswith("<|im_end|> (2)")
    assert none["ending"] == pytest.approx(repaired.data["base_ending"], abs=0.01)
    recover(tmp_path, "export", repaired.data["repaired"], "--to", "fixed").ended(0)
    assert missing_end(StopFiles.of(str(tmp_path / "fixed"))) is None
    assert StopFiles.of(str(tmp_path / "fixed")).template == END


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(mask_the_end_as_padding, marks=pytest.mark.slow, id="masked as padding"),
        pytest.param(overwrite_the_row, marks=pytest.mark.release, id="its row was overwritten"),
    ],
)
def test_an_end_that_was_unlearned_is_taught_before_anything_else(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = copy_of_base(tmp_path / "broken")
    damage(folder)
    repaired = repair(tmp_path, folder, *SHORT).ended(0)
    before, after = repaired.data["moves"]
    enough = 0.5 * repaired.data["base_ending"]
    assert before["verdict"]["outcome"] == "passed", "it is the end alone that is missing"
    assert before["ending"] < enough
    assert (after["move"], after["steps"]) == ("ends", 24)
    assert after["ending"] > enough
