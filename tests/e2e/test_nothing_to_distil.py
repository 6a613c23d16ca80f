"""A cycle distils only if the gate does not promote the mid-trained model as it is, where the settings say so."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import BASE, make_world
from tests.e2e.command_line import Completed, recover
from tests.e2e.test_attempts import LENIENT, SMALL, STRICT
from tests.pipelines.options import set_options

pytestmark = pytest.mark.slow

FEW = [*SMALL, *set_options("midtrain.max_steps=3", "midtrain.rows=4")]


def cycle(folder: Path, *limits: Any) -> Completed:
    make_world(5, size="small").write(folder / "world")
    files = ["--docs", "world/docs", "--questions", "world/questions.jsonl", "--mix", "documents"]
    if_needed = set_options("distill.if_needed=true")
    return recover(folder, "cycle", *files, "--max-steps", 2, "--limit", 6, *FEW, *if_needed, *limits)


def test_a_copy_of_a_mid_trained_model_that_passes_is_promoted(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *LENIENT).ended(0)
    data = completed.data
    assert data["promoted"]
    assert data["steps"] == 0
    assert data["recovered"] == data["damaged"]
    (promoted,) = recover(tmp_path, "status").data["cycles"]
    assert promoted["recovered"] == data["recovered"], "which later cycles must keep"
    assert promoted["recovered"]["knowledge"] is not None
    assert completed.stderr.count("Measuring") == 2
    shown = [recover(tmp_path, "show", f"cycle:1/{role}").data for role in ("recovered", "midtrained")]
    weights = [next(Path(one["path"]).glob("*.safetensors")).read_bytes() for one in shown]
    assert weights[0] == weights[1]
    of_copy, of_original = (sum(evaluation["seconds"] for evaluation in one["evaluations"]) for one in shown)
    assert of_copy == 0 < of_original, "the time of a measurement counts once"
    again = recover(tmp_path, "eval", "cycle:1/recovered", "--questions", "world/questions.jsonl", "--limit", 6)
    assert "Measuring" not in again.stderr


@pytest.mark.parametrize(
    "flags",
    [pytest.param(STRICT, id="it does not pass"), pytest.param([*LENIENT, "--recipe", "self-sft"], id="new knowledge")],
)
def test_it_is_distilled_if_it_does_not_pass_or_the_recipe_teaches_more(tmp_path: Path, flags: list[str]) -> None:
    completed = cycle(tmp_path, *flags)
    assert completed.data["steps"] == 2, completed.stderr


def test_after_the_gate_has_rejected_it_a_model_that_lost_nothing_on_probes_is_trained(tmp_path: Path) -> None:
    """The gate has more items, and asks for more than instructions."""
    make_world(5, size="quick").write(tmp_path / "world")  # with enough questions for probes
    for document in sorted((tmp_path / "world" / "docs").iterdir())[8:]:
        document.unlink()
    probed = set_options("distill.probe_every=1", "distill.probe_items=8", "midtrain.learning_rate=1e-9")
    strict_gate = set_options("gate.behaviour_margin=0.99", "gate.keep_knowledge=0", "gate.keep_retention=0.99")
    files = ["--docs", "world/docs", "--questions", "world/questions.jsonl", "--mix", "documents"]
    few = ["--max-steps", 2, "--limit", 12, *FEW, *strict_gate, *probed]
    first = recover(tmp_path, "cycle", *files, *few).ended(3, 4)
    assert first.data["steps"] == 0, first.stderr
    assert recover(tmp_path, "distill", "--teacher", "base", *few).data["steps"] > 0


def test_another_teacher_teaches_also_where_nothing_is_lost(tmp_path: Path) -> None:
    """The probes compare with the clean model, and say nothing about what another one teaches."""
    shutil.copytree(BASE, tmp_path / "expert")
    options = ["--student", "base", "--max-steps", 4, "--limit", 12, *SMALL, *LENIENT]
    options += set_options("distill.steps=4", "distill.probe_every=1", "distill.probe_items=8")
    by_base, by_expert = (
        recover(tmp_path, "distill", "--teacher", teacher, *options) for teacher in ("base", tmp_path / "expert")
    )
    assert by_base.data["steps"] == 0
    assert (by_expert.data["steps"], by_expert.data["stopped"]) == (4, None)
    assert "probe at step 2" in by_expert.stderr


def test_a_copy_that_does_not_pass_is_not_measured_again(tmp_path: Path) -> None:
    completed = cycle(tmp_path, *STRICT, *set_options("distill.steps=0", "distill.warm_start=off")).ended(3)
    assert completed.data["steps"] == 0
    assert completed.data["recovered"] == completed.data["damaged"]
    assert completed.stderr.count("Measuring") == 2
