"""What the command line says before it has anything to do, and where it cannot do it."""

import shutil
from pathlib import Path

import pytest

from recovery.lab import BASE
from tests.e2e.command_line import recover


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
        (["eval", "cycle:9"], 1, "There is no cycle:9"),
        (["eval", "./nowhere"], 1, "There is no checkpoint './nowhere'"),
        (["eval", "router"], 1, "There is no checkpoint 'router'"),
        (["distill", "--student", "base", "--set", "distill.earlier_prompts=1"], 1, "distill.earlier_prompts must be"),
        (["midtrain", "--docs", "./nowhere"], 1, "There is no file or folder nowhere"),
        (["midtrain"], 2, "Missing option '--docs'"),
        (["distill", "--teacher", "base"], 1, "nothing mid-trained waits here"),
        (["eval", "--suite", "manners"], 2, "is not one of"),
        (["distill", "--student", "base", "--prompts", "./none"], 1, "Cannot read none"),
        (["distill", "--student", "base", "--questions", "./none"], 1, "cannot read none"),
        (["distill", "--student", "base", "--recipe", "magic"], 1, "distillation has no recipe 'magic'"),
        (["distill", "--student", "base", "--recipe", "grpo"], 1, "distillation has no recipe 'grpo'"),
        (["midtrain", "--docs", "."], 1, "no readable document"),
        (["dashboard"], 1, "there is no project here yet"),
        (["resume"], 1, "There is no project here yet"),
        (["runs"], 1, "There is no project here yet"),
        (["rollback"], 1, "There is no project here yet"),
        (["cycle", "--docs", ".", "--set", "distill.stepz=3"], 1, "There is no setting distill.stepz"),
        (["cycle", "--docs", ".", "--set", "nonsense"], 1, "Write a setting as name=value"),
        (["distill", "--student", "base", "--warm-start", "half"], 1, "off, auto, default or a share"),
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
