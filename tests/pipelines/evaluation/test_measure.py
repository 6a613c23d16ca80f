import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main
from pipelines.evaluation.measure import EvalPlan
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from recovery.lab import BASE


def test_what_a_measurement_is_decided_by_is_told_whole(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text("{}")
    asked = EvalPlan("all", questions, limit=300, beside=200, part="final", earlier=((1, questions),))
    assert EvalPlan.from_json(asked.to_json()) == asked


def test_the_projects_own_files_are_found_where_it_lies_now(tmp_path: Path) -> None:
    home = tmp_path / "there" / ".recover"
    kept, own = home / "questions" / "abc" / "q.jsonl", tmp_path / "mine.jsonl"
    for file in (kept, own):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    before = tmp_path / "here" / ".recover" / "questions" / "abc" / "q.jsonl"
    asked = EvalPlan(questions=before, ifeval_data=own, earlier=((1, before), (2, tmp_path / "gone.jsonl")))
    found = asked.located(home)
    assert (found.questions, found.ifeval_data) == (kept, own)
    assert found.earlier == ((1, kept), (2, tmp_path / "gone.jsonl"))
    before.parent.mkdir(parents=True)
    before.write_text("{}")
    assert relocate(home, before) == kept  # a copy does not live by what it was copied from
    lost = before.with_name("other.jsonl")
    assert relocate(home, lost) == lost


def test_measurements_that_would_find_something_else_have_another_key() -> None:
    kinds = [EvalPlan(), EvalPlan(limit=300), EvalPlan(limit=300, beside=200), EvalPlan(part="probe")]
    assert len({asked.key("weights", "retention", {}) for asked in kinds}) == len(kinds)


def test_a_changed_file_of_a_suite_is_another_measurement(tmp_path: Path) -> None:
    file = tmp_path / "house.jsonl"
    file.write_text("one")
    named = {"behaviour": f"lab,{file}", "retention": "lab"}
    before = {suite: EvalPlan().key("weights", suite, named) for suite in named}
    assert before["behaviour"] == EvalPlan().key("weights", "behaviour", named)
    file.write_text("two")
    after = {suite: EvalPlan().key("weights", suite, named) for suite in named}
    assert after["behaviour"] != before["behaviour"]
    assert after["retention"] == before["retention"]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's base, in a folder of its own, measured by a file beside it."""
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "base"
    shutil.copytree(BASE, base)
    (base / "recover.json").write_text(json.dumps({"suites": {"behaviour": "house.jsonl"}}))
    (base / "house.jsonl").write_text(asking(1000))
    return base


def asking(most: int) -> str:
    return json.dumps({"prompt": "Name a metal.", "checks": [{"max_words": most}]})


def recover(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--json"])


def test_a_suites_file_lies_beside_the_base_and_a_change_in_it_is_noticed(house: Path) -> None:
    def scored() -> tuple[float, str]:
        ran = recover("eval", "base", "--base", str(house))
        [found] = json.loads(ran.stdout)["evaluations"]
        return found["metrics"]["passed"]["value"], ran.stderr

    assert scored()[0] == 1.0
    assert "was measured before" in scored()[1]
    (house / "house.jsonl").write_text(asking(0))
    assert scored()[0] == 0.0
    (house / "house.jsonl").unlink()
    for command in (["eval", "base"], ["distill", "--student", "base"]):
        ran = recover(*command)
        assert ran.exit_code == 1
        assert f"{house / 'house.jsonl'} is not there, which {house / 'recover.json'} names" in ran.stderr


def test_what_cannot_be_compared_is_told_before_anything_is_measured(house: Path) -> None:
    ran = recover("compare", "base", "run:2")
    assert ran.exit_code == 1
    assert "there is no run:2" in ran.stderr
    assert "measuring" not in ran.stderr
    project = Project.open_existing(None)
    assert list(project.reader.runs(project.id)) == []


def test_few_items_are_all_kept_for_the_verdict(tmp_path: Path) -> None:
    def written(name: str, rows: list[dict[str, Any]]) -> Path:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    questions = written("few.jsonl", [{"question": f"Who is {n}?", "answer": "Ada"} for n in range(49)])
    assert "fewer than 50 questions" in EvalPlan(questions=questions).too_few_to_part({})
    passages = {n: written(f"{n}.jsonl", [{"text": f"Text {i}."} for i in range(n)]) for n in (1, 9, 40)}
    said = [EvalPlan(passages=file).too_few_to_part({}) for file in passages.values()]
    assert [bool(words) for words in said] == [True, True, False]
    tasks = written("one.jsonl", [{"prompt": "Say yes.", "checks": [{"contains": "yes"}]}])
    assert "too few tasks in one.jsonl" in EvalPlan().too_few_to_part({"behaviour": str(tasks)})
    assert EvalPlan().too_few_to_part({"behaviour": "lab"}) == ""
    enough = written("enough.jsonl", [{"question": f"Who is {n}?", "answer": "Ada"} for n in range(60)])
    assert EvalPlan(questions=enough).too_few_to_part({"knowledge": str(tasks)}) == "", "it is not asked by that"


def test_whether_the_public_prompts_are_in_reach_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reach = iter([False, True])
    monkeypatch.setattr("pipelines.evaluation.measure.is_public_in_reach", lambda named: next(reach))
    without, with_them = EvalPlan().settled({}), EvalPlan().settled({})
    assert (without.public, with_them.public) == (False, True)
    assert without.key("weights", "behaviour", {}) != with_them.key("weights", "behaviour", {})
    assert EvalPlan.from_json(without.to_json()) == without
    given = EvalPlan(ifeval_data=Path("mine.jsonl"))
    assert given.settled({}) == given
