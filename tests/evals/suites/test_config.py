import json
from pathlib import Path

import pytest

from evals.suites.config import TRUST, content_id, load_suites, suite_files
from recovery.errors import RecoverError


def base(folder: Path, **suites: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recover.json").write_text(json.dumps({"suites": suites}))
    return folder


def test_a_path_is_relative_to_the_folder_of_recover_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base(tmp_path / "base", behaviour="lab, ./house.jsonl,gsm8k", retention="more/sums.yaml")
    house, sums = folder / "house.jsonl", folder / "more" / "sums.yaml"
    sums.parent.mkdir()
    for file in (house, sums):
        file.write_text("content")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv(TRUST, "1")
    for name in ("house.jsonl", "gsm8k", "lab"):
        (elsewhere / name).write_text("something else")
    assert load_suites(folder) == {"behaviour": f"lab,{house},gsm8k", "retention": str(sums)}
    assert suite_files(load_suites(folder)) == [house, sums]


def test_a_yaml_task_needs_the_trust_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base(tmp_path / "base", behaviour="lab,sums.yaml")
    (folder / "sums.yaml").write_text("task: sums\ndoc_to_text: !function code.prompt")
    for value in ("", "0"):
        monkeypatch.setenv(TRUST, value)
        with pytest.raises(RecoverError, match=f"sums.yaml, a custom lm-eval task.*{TRUST}=1"):
            load_suites(folder)
    monkeypatch.setenv(TRUST, "1")
    assert load_suites(folder) == {"behaviour": f"lab,{folder / 'sums.yaml'}"}


def test_a_base_without_suites(tmp_path: Path) -> None:
    assert load_suites(tmp_path) == load_suites("org/name") == load_suites(base(tmp_path / "base")) == {}


def test_malformed_suites(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="Write it like"):
        load_suites(base(tmp_path / "base", behaviour=["lab"]))
    comma = base(tmp_path / "a,b", behaviour="house.jsonl")
    (comma / "house.jsonl").write_text("content")
    with pytest.raises(RecoverError, match="comma in its path"):
        load_suites(comma)
    assert load_suites(base(comma, behaviour="lab")) == {"behaviour": "lab"}


def test_the_content_id_depends_on_the_content_of_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "house.jsonl").write_text("one")
    same = [content_id(f"lab,{folder / 'house.jsonl'}") for folder in (first, second)]
    assert same[0] == same[1]
    (first / "house.jsonl").write_text("two")
    assert content_id(f"lab,{first / 'house.jsonl'}") != same[0]
    assert content_id("lab,gsm8k") == "lab,gsm8k"


def test_the_content_id_of_a_yaml_covers_the_files_it_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, common, rows, code = (tmp_path / name for name in ("sums.yaml", "common.yaml", "rows.jsonl", "code.py"))
    common.write_text(f"include: sums.yaml\ndataset_kwargs: {{data_files: {{test: {rows}}}}}")  # a circular include
    sums.write_text("include: common.yaml\ntask: sums\ndoc_to_text: !function code.prompt")
    rows.write_text("{}")
    code.write_text("")
    ids = {content_id(str(sums))}
    for file in (sums, common, rows, code):
        file.write_text(file.read_text() + "\n")
        ids.add(content_id(str(sums)))
    assert len(ids) == 5
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").mkdir()
    sums.write_text("dataset_path: json\ndataset_kwargs: {data_dir: data}\ndoc_to_text: Write **/* and **.")
    of_the_hub = content_id(str(sums))
    for name in ("json", "data"):
        (tmp_path / name / "other.jsonl").touch()
    assert content_id(str(sums)) == of_the_hub
    for named in (f"dataset_path: {folder}", "dataset_path: data", "data_files: {test: data/*.jsonl}"):
        sums.write_text(named)
        before = content_id(str(sums))
        (folder / "more.jsonl").write_text(named)
        assert content_id(str(sums)) != before
    sums.write_text("task: [")
    assert content_id(str(sums)) not in ids


@pytest.mark.parametrize("tasks", ["general,general.jsonl", "a/own.jsonl,b/own.jsonl", "gsm8k, gsm8k"])
def test_two_tasks_of_one_name_in_a_suite_are_refused(tmp_path: Path, tasks: str) -> None:
    with pytest.raises(RecoverError, match="has two tasks of the name"):
        load_suites(base(tmp_path, retention=tasks))


@pytest.mark.parametrize(
    ("suite", "tasks"),
    [("behaviour", "lab,ifeval"), ("behaviour", "refusals.jsonl,lab"), ("retention", "lab,arithmetic.jsonl")],
)
def test_the_tasks_that_the_lab_stands_for_count(tmp_path: Path, suite: str, tasks: str) -> None:
    """Stored under one name, the results of one would be taken for the other's."""
    with pytest.raises(RecoverError, match="has two tasks of the name"):
        load_suites(base(tmp_path, **{suite: tasks}))
    assert load_suites(base(tmp_path, behaviour="lab", retention="lab,general", knowledge="lab"))


def test_a_suite_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Else its tasks would be left out, and those of the default measured."""
    with pytest.raises(RecoverError, match=r"names the suite 'behavior', .* Use one of behaviour, .*retention, gsm8k"):
        load_suites(base(tmp_path, behavior="lab"))
    with pytest.raises(RecoverError, match=r"names the suite '', "):
        load_suites(base(tmp_path, **{"": "lab"}))
    assert load_suites(base(tmp_path, gsm8k="gsm8k_cot")) == {"gsm8k": "gsm8k_cot"}
