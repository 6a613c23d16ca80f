import json
from pathlib import Path

import pytest

from evals.suites.config import TRUST, content_id, load_suites, suite_files
from recovery.errors import RecoverError


def base(folder: Path, **suites: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recover.json").write_text(json.dumps({"suites": suites}))
    return folder


def test_a_path_counts_from_the_folder_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base(tmp_path / "base", behaviour="lab, ./house.jsonl,gsm8k", retention="more/sums.yaml")
    house, sums = folder / "house.jsonl", folder / "more" / "sums.yaml"
    sums.parent.mkdir()
    for file in (house, sums):
        file.write_text("there")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv(TRUST, "1")
    for name in ("house.jsonl", "gsm8k", "lab"):
        (elsewhere / name).write_text("something else")
    assert load_suites(folder) == {"behaviour": f"lab,{house},gsm8k", "retention": str(sums)}
    assert suite_files(load_suites(folder)) == [house, sums]


def test_a_task_that_may_run_code_is_only_taken_from_whom_the_user_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base(tmp_path / "base", behaviour="lab,sums.yaml")
    (folder / "sums.yaml").write_text("task: sums\ndoc_to_text: !function made.asked")
    for said in ("", "0"):
        monkeypatch.setenv(TRUST, said)
        with pytest.raises(RecoverError, match=f"sums.yaml, an lm-eval task of its own.*{TRUST}=1"):
            load_suites(folder)
    monkeypatch.setenv(TRUST, "1")
    assert load_suites(folder) == {"behaviour": f"lab,{folder / 'sums.yaml'}"}


def test_a_base_that_names_nothing(tmp_path: Path) -> None:
    assert load_suites(tmp_path) == load_suites("org/name") == load_suites(base(tmp_path / "base")) == {}


def test_a_file_that_is_not_there_is_said_with_who_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base(tmp_path / "base", behaviour="house.jsonl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house.jsonl").write_text("not this one")
    with pytest.raises(RecoverError) as said:
        load_suites(folder)
    assert str(folder / "house.jsonl") in str(said.value)
    assert str(folder / "recover.json") in str(said.value)


def test_suites_that_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="should be like"):
        load_suites(base(tmp_path / "base", behaviour=["lab"]))
    comma = base(tmp_path / "a,b", behaviour="house.jsonl")
    (comma / "house.jsonl").write_text("there")
    with pytest.raises(RecoverError, match="comma in its path"):
        load_suites(comma)
    assert load_suites(base(comma, behaviour="lab")) == {"behaviour": "lab"}


def test_tasks_are_told_apart_by_what_their_files_hold(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "house.jsonl").write_text("one")
    same = [content_id(f"lab,{folder / 'house.jsonl'}") for folder in (here, there)]
    assert same[0] == same[1]
    (here / "house.jsonl").write_text("two")
    assert content_id(f"lab,{here / 'house.jsonl'}") != same[0]
    assert content_id("lab,gsm8k") == "lab,gsm8k"


def test_a_yaml_is_known_by_the_files_it_names_too(tmp_path: Path) -> None:
    sums, common, rows, code = (tmp_path / name for name in ("sums.yaml", "common.yaml", "rows.jsonl", "made.py"))
    common.write_text(f"include: sums.yaml\ndataset_kwargs: {{data_files: {{test: {rows}}}}}")  # and round in a circle
    sums.write_text("include: common.yaml\ntask: sums\ndoc_to_text: !function made.asked")
    rows.write_text("{}")
    code.write_text("")
    found = {content_id(str(sums))}
    for file in (sums, common, rows, code):
        file.write_text(file.read_text() + "\n")
        found.add(content_id(str(sums)))
    assert len(found) == 5
    sums.write_text("task: [")
    assert content_id(str(sums)) not in found
