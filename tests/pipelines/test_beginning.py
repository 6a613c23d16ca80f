"""What a command that was refused leaves behind."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli import main
from tests.models import save_tiny


def test_a_base_that_was_too_large_can_be_given_up_for_another(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ("midtrain", "--docs", str(docs), "--base", str(save_tiny(tmp_path / "other")), "--dry-run")
    monkeypatch.setattr("pipelines.fitting.memory", lambda: 1)
    refused = CliRunner().invoke(main, ["midtrain", "--docs", str(docs)])
    assert (refused.exit_code, "training it so takes" in refused.stderr) == (1, True)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, other).exit_code == 0
