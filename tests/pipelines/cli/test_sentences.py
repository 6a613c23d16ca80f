import shutil
from pathlib import Path

import pytest

from recovery.lab import BASE, make_world
from tests.pipelines.options import data_of, error_of, recover


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory has no project, and no base is configured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)


def test_status_creates_no_project(tmp_path: Path) -> None:
    assert data_of(recover("status", "--json"))["current"] is None
    assert not list(tmp_path.iterdir())


def test_a_repair_without_a_base_uses_the_teacher_as_its_base(tmp_path: Path) -> None:
    teacher = tmp_path / "clean"
    shutil.copytree(BASE, teacher)
    completed = recover("distill", "--student", BASE, "--teacher", teacher, "--dry-run", "--json")
    assert data_of(completed)["base"] == str(teacher)
    assert "the student is compared with it" in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["eval", "cycle:9"], 1, "There is no cycle:9"),
        (["midtrain"], 2, "Missing option '--docs'"),
        (["distill", "--teacher", "base"], 1, "No mid-trained checkpoint waits"),
        (["distill", "--student", str(BASE), "--teacher", "cycle:9"], 1, "There is no cycle:9"),
        (["eval", "--suite", "style"], 2, "is not one of"),
        (["doctor", "--base", str(BASE)], 2, "--base belongs to --model"),
        (["distill", "--student", "base", "--recipe", "magic"], 1, "Distillation has no recipe 'magic'"),
        (["midtrain", "--docs", "."], 1, "no readable document"),
        (["dashboard"], 1, "There is no project here yet"),
        (["dashboard", "--project", "elsewhere"], 1, "There is no project in elsewhere. Name the folder"),
        (["resume"], 1, "There is no project here yet"),
        (["status", "--project", "elsewhere"], 1, "There is no project in elsewhere. Name the folder"),
        (["rollback"], 1, "There is no project here yet"),
        (["cycle", "--docs", ".", "--set", "distill.stepz=3"], 1, "There is no setting distill.stepz"),
    ],
)
def test_an_error_that_a_user_can_fix_is_one_sentence(
    tmp_path: Path, arguments: list[str], exit_code: int, sentence: str
) -> None:
    json_option = [] if arguments[0] == "dashboard" else ["--json"]
    completed = recover(*arguments, *json_option)
    assert completed.exit_code == exit_code
    assert isinstance(completed.exception, SystemExit)
    assert sentence in completed.stderr
    if exit_code == 1 and json_option:
        assert sentence in error_of(completed)
    assert not list(tmp_path.iterdir()), "a refused command leaves the folder as it was"


@pytest.mark.parametrize("command", [["midtrain"], ["cycle"], ["check", str(BASE)], ["repair", str(BASE)]])
def test_questions_among_the_documents_are_refused(tmp_path: Path, command: list[str]) -> None:
    make_world(5, size="quick").write(tmp_path / "world")
    options = ["--docs", "world", "--questions", "world/questions.jsonl", "--base", BASE, "--json"]
    error = error_of(recover(*command, *options))
    assert "the model would learn the answers from them. Put them into another folder." in error
