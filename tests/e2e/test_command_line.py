"""One whole cycle on the built-in model, through the real command line: as a user would, from an empty folder."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import BASE, make_world

RECOVER = [sys.executable, "-m", "pipelines.cli"]


@dataclass
class Ran:
    code: int
    found: Any
    words: str


def recover(folder: Path, *arguments: object, json_wanted: bool = True) -> Ran:
    command = [*RECOVER, *map(str, arguments), *(["--json"] if json_wanted else [])]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    found = json.loads(done.stdout) if json_wanted and done.stdout.strip() else done.stdout
    return Ran(done.returncode, found, done.stderr)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """midtrain, eval, distill, eval, status, in the order of the README."""
    folder = tmp_path_factory.mktemp("project")
    make_world(77, size="quick").write(folder / "corpus")
    questions = folder / "corpus" / "questions.jsonl"
    ran: dict[str, Any] = {"folder": folder}
    ran["midtrain"] = recover(folder, "midtrain", "--docs", folder / "corpus" / "docs", "--questions", questions)
    ran["damaged"] = recover(folder, "eval", "cycle:1/midtrained", "--limit", 150, "--questions", questions)
    ran["distill"] = recover(folder, "distill", "--teacher", "base", "--limit", 150, "--max-steps", 16)
    ran["recovered"] = recover(folder, "eval", "cycle:1", "--limit", 150, "--suite", "behaviour")
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
    assert metric["n"] == 150
    assert metric["ci95"][0] <= metric["value"] <= metric["ci95"][1]


def test_what_a_measurement_cost_is_told_and_kept(lived: dict[str, Any]) -> None:
    told = {e["task"]: e["cost"] for e in lived["damaged"].found["evaluations"]}
    assert all(cost["tokens_read"] > 0 and cost["tokens_per_second"] > 0 for cost in told.values())
    assert told["ifeval"]["tokens_written"] >= 150
    shown = recover(lived["folder"], "show", "cycle:1/midtrained").found["evaluations"]
    assert told["ifeval"] in [e["cost"] for e in shown if e["task"] == "ifeval"]


def test_what_is_on_record_is_not_measured_again(lived: dict[str, Any]) -> None:
    again = recover(lived["folder"], "eval", "cycle:1", "--limit", 150, "--suite", "behaviour")
    assert "was measured before" in again.words
    assert again.found["evaluations"] == lived["recovered"].found["evaluations"]


def test_status_knows_the_cycle_and_the_current_model(lived: dict[str, Any]) -> None:
    found = lived["status"].found
    promoted = lived["distill"].found["promoted"]
    assert found["current"] == ("cycle:1/recovered" if promoted else "base")
    assert [c["status"] for c in found["cycles"]] == ["promoted" if promoted else "rejected"]
    assert found["next"].startswith("recover cycle")


def test_looking_does_not_begin_a_project(tmp_path: Path) -> None:
    ran = recover(tmp_path, "status")
    assert ran.code == 0
    assert ran.found["current"] is None
    assert not list(tmp_path.iterdir())


def test_a_repair_is_held_against_its_teacher_where_no_other_base_is_named(tmp_path: Path) -> None:
    teacher = tmp_path / "clean"
    shutil.copytree(BASE, teacher)
    ran = recover(tmp_path, "distill", "--student", BASE, "--teacher", teacher, "--dry-run")
    assert ran.code == 0, ran.words
    assert ran.found["base"] == str(teacher)
    assert "held against" in ran.words


def test_a_router_is_no_checkpoint_but_a_way_to_be_taught(tmp_path: Path) -> None:
    ran = recover(tmp_path, "distill", "--student", BASE, "--teacher", "router", "--dry-run")
    assert ran.code == 0, ran.words
    assert ran.found["teacher"] == "router"
    assert ran.found["base"] == str(BASE)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["eval", "cycle:9"], 1, "there is no cycle:9"),
        (["eval", "./nowhere"], 1, "there is no checkpoint './nowhere'"),
        (["eval", "router"], 1, "there is no checkpoint 'router'"),
        (["distill", "--student", "base", "--set", "distill.remember=1"], 1, "distill.remember is a share"),
        (["midtrain", "--docs", "./nowhere"], 1, "there is nothing at nowhere"),
        (["midtrain"], 2, "Missing option '--docs'"),
        (["distill", "--teacher", "base"], 1, "nothing mid-trained waits here"),
        (["eval", "--suite", "manners"], 2, "is not one of"),
        (["distill", "--student", "base", "--prompts", "./none"], 1, "cannot read none"),
        (["distill", "--student", "base", "--questions", "./none"], 1, "cannot read none"),
        (["distill", "--student", "base", "--recipe", "magic"], 1, "distillation has no recipe 'magic'"),
        (["distill", "--student", "base", "--recipe", "grpo"], 1, "distillation has no recipe 'grpo'"),
        (["midtrain", "--docs", "."], 1, "no readable document"),
        (["dashboard"], 1, "there is no project here yet"),
        (["resume"], 1, "there is no project here yet"),
        (["runs"], 1, "there is no project here yet"),
        (["rollback"], 1, "there is no project here yet"),
        (["cycle", "--docs", ".", "--set", "distill.stepz=3"], 1, "there is no setting distill.'stepz'"),
        (["cycle", "--docs", ".", "--set", "nonsense"], 1, "a setting is written name=value"),
        (["distill", "--student", "base", "--warm-start", "half"], 1, "off, auto or a share"),
        (["distill", "--student", "base", "--engine", "steam"], 2, "is not one of"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    ran = recover(tmp_path, *arguments, json_wanted=arguments[0] != "dashboard")
    assert ran.code == code
    assert sentence in ran.words
    assert "Traceback" not in ran.words
    if code == 1 and arguments[0] != "dashboard":
        assert sentence in ran.found["error"]
