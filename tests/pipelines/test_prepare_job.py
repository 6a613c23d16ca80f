"""What a command that was refused leaves behind."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli import main
from tests.models import save_tiny


def test_a_base_that_was_too_large_can_be_given_up_for_another(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ("midtrain", "--docs", str(docs), "--base", str(save_tiny(tmp_path / "other")), "--dry-run")
    monkeypatch.setattr("pipelines.machine.memory_check.total_memory", lambda: 1)
    refused = CliRunner().invoke(main, ["midtrain", "--docs", str(docs)])
    assert (refused.exit_code, "Training it takes" in refused.stderr) == (1, True)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, other).exit_code == 0


def test_a_dry_run_where_nothing_is_begun_leaves_nothing(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty := tmp_path / "empty").mkdir()
    monkeypatch.chdir(empty)
    ran = CliRunner().invoke(main, ["cycle", "--docs", str(docs), "--dry-run", "--json"])
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["start"], found["teacher"], found["files"]) == (0, "base", "base", 60)
    assert list(empty.iterdir()) == []


def test_what_was_refused_began_nothing(docs: Path, tmp_path: Path) -> None:
    refused = CliRunner().invoke(main, ["midtrain", "--docs", str(docs), "--set", "midtrian.rows=4"])
    assert refused.exit_code == 1
    assert json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)["project"] is None
