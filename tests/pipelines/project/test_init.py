"""`recover init`, and where a project's record is looked for."""

import json
from pathlib import Path

import pytest

from tests.pipelines.options import recover


def test_a_record_that_does_not_contain_the_project_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOVER_DB", str(tmp_path / "another.db"))
    assert recover("init").exit_code == 0
    weights = tmp_path / ".recover" / "checkpoints" / "run-0001"
    weights.mkdir(parents=True)
    monkeypatch.delenv("RECOVER_DB")
    ran = recover("gc", "--json")
    assert (ran.exit_code, "RECOVER_DB" in ran.stderr, weights.is_dir()) == (1, True, True)


def test_a_database_path_in_the_settings_is_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recover.toml").write_text('db = "record.db"')
    assert recover("init").exit_code == 0
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    ran = recover("status", "--json")
    assert json.loads(ran.stdout)["project"] == str(tmp_path)
    assert (tmp_path / "record.db").is_file()
    assert list((tmp_path / "deeper").iterdir()) == []


@pytest.mark.parametrize("option", [["--base", "./no-such-model"], ["--db", "postgresql://127.0.0.1:1/none"]])
def test_a_failed_init_leaves_nothing_that_it_created(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "new" / "p"
    assert recover("init", "--project", "new/p", *option).exit_code == 1
    assert list(tmp_path.iterdir()) == []
    (folder / ".recover").mkdir(parents=True)
    assert recover("init", "--project", "new/p", *option).exit_code == 1
    assert [path.name for path in folder.rglob("*")] == [".recover"]
    assert recover("init", "--project", folder).exit_code == 0
    assert (folder / "recover.toml").read_text().startswith("# The defaults of other settings")
