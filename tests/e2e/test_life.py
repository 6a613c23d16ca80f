"""One whole cycle on the built-in model, through the real command line: as a user would, from an empty folder."""

from pathlib import Path
from typing import Any

import pytest

from recovery.lab import make_world
from tests.e2e.command_line import Ran, recover

ALONE = ["--set", "midtrain.mix.answers=0", "--set", "midtrain.mix.texts=0"]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """midtrain, eval, distill, eval, status, in the order of the README; documents alone are read, so that there is
    something to bring back."""
    folder = tmp_path_factory.mktemp("project")
    make_world(77, size="quick").write(folder / "corpus")
    questions = folder / "corpus" / "questions.jsonl"
    ran: dict[str, Any] = {"folder": folder}
    docs = folder / "corpus" / "docs"
    ran["midtrain"] = recover(
        folder, "midtrain", "--docs", docs, "--questions", questions, "--set", "midtrain.epochs=3", *ALONE
    )
    ran["damaged"] = recover(folder, "eval", "cycle:1/midtrained", "--limit", 100, "--questions", questions)
    few = ["--set", "distill.prompts=400", "--set", "distill.probe_items=60", "--max-steps", 8]
    ran["distill"] = recover(folder, "distill", "--teacher", "base", "--limit", 100, *few)
    ran["recovered"] = recover(folder, "eval", "cycle:1", "--limit", 100, "--suite", "behaviour")
    ran["status"] = recover(folder, "status")
    return ran


def headline(ran: Ran, task: str, metric: str) -> float:
    return next(e["metrics"][metric]["value"] for e in ran.found["evaluations"] if e["task"] == task)


def test_midtraining_says_what_it_did_and_which_model_it_took(lived: dict[str, Any]) -> None:
    ran = lived["midtrain"]
    assert ran.code == 0, ran.words
    assert ran.found["cycle"] == 1
    assert ran.found["checkpoint"] == "cycle:1/midtrained"
    assert Path(ran.found["path"], "model.safetensors").is_file()
    assert "built-in lab model" in ran.words
    assert "--base" in ran.words


def test_distilling_brings_the_behaviour_back_and_keeps_the_knowledge(lived: dict[str, Any]) -> None:
    ran = lived["distill"]
    assert ran.code in (0, 3), ran.words
    clean, damaged, recovered = (ran.found[stage] for stage in ("clean", "damaged", "recovered"))
    assert damaged["behaviour"] < clean["behaviour"] - 0.1
    assert recovered["behaviour"] > damaged["behaviour"] + 0.1
    assert damaged["knowledge"] is not None  # the questions given to midtrain were remembered
    assert recovered["knowledge"] > clean["knowledge"] + 0.3
    assert ran.found["promoted"] == (ran.code == 0) == ran.found["verdict"]["passed"]


def test_eval_prints_numbers_with_their_uncertainty(lived: dict[str, Any]) -> None:
    ran = lived["damaged"]
    assert ran.code == 0, ran.words
    metric = next(e for e in ran.found["evaluations"] if e["task"] == "ifeval")["metrics"]["prompt_level_strict_acc"]
    assert metric["n"] == 100
    assert metric["ci95"][0] <= metric["value"] <= metric["ci95"][1]


def test_what_a_measurement_cost_is_told_and_kept(lived: dict[str, Any]) -> None:
    told = {e["task"]: e["cost"] for e in lived["damaged"].found["evaluations"]}
    assert all(cost["tokens_read"] > 0 and cost["tokens_per_second"] > 0 for cost in told.values())
    assert told["ifeval"]["tokens_written"] >= 100
    shown = recover(lived["folder"], "show", "cycle:1/midtrained").found["evaluations"]
    assert told["ifeval"] in [e["cost"] for e in shown if e["task"] == "ifeval"]


def test_what_is_on_record_is_not_measured_again(lived: dict[str, Any]) -> None:
    again = recover(lived["folder"], "eval", "cycle:1", "--limit", 100, "--suite", "behaviour")
    assert "Reusing the stored results" in again.words
    assert again.found["evaluations"] == lived["recovered"].found["evaluations"]


def test_status_knows_the_cycle_and_the_current_model(lived: dict[str, Any]) -> None:
    found = lived["status"].found
    promoted = lived["distill"].found["promoted"]
    assert found["current"] == ("cycle:1/recovered" if promoted else "base")
    assert [c["status"] for c in found["cycles"]] == ["promoted" if promoted else "rejected"]
    assert found["next"].startswith("recover cycle")
