from pathlib import Path

import pytest

from pipelines.project.locations import Base, resolve_base
from pipelines.project.project import Project
from recovery.errors import RecoverError
from recovery.lab import BASE
from tests.pipelines.options import recover


def test_the_flag_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    assert resolve_base(tmp_path) == Base(str(BASE), True)
    (tmp_path / "model").mkdir()
    (tmp_path / "recover.toml").write_text('base = "model"')
    assert resolve_base(tmp_path) == Base(str(tmp_path / "model"), False)  # relative to the file
    monkeypatch.setenv("RECOVER_BASE", "org/environment")
    assert resolve_base(tmp_path) == Base("org/environment", False)
    assert resolve_base(tmp_path, "org/flag") == Base("org/flag", False)


def test_a_base_that_is_no_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("base = 7")
    with pytest.raises(RecoverError, match="It must be a folder or a hub id"):
        resolve_base(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[distil]", "There is no setting distil."),
        ("[distill]\nsteps = 'ten'", "The setting distill.steps must be a whole number of at least 0, not 'ten'."),
        ("[midtrain]\nmix = 'nonsense'", "The mix 'nonsense' has the unknown entry 'nonsense'."),
        ("distill = [", "is not valid TOML"),
    ],
)
def test_a_command_that_trains_nothing_refuses_a_broken_settings_file(
    content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "recover.toml").write_text(content)
    for command in (["status"], ["eval", "base"]):
        refused = recover(*command, "--project", tmp_path)
        assert (refused.exit_code, sentence in refused.stderr) == (1, True), refused.stderr
    (tmp_path / "recover.toml").write_text("[midtrain]\nmix = 'documents'")
    _ = Project.open(tmp_path).id
    (tmp_path / "recover.toml").write_text(content)
    assert sentence in recover("status", "--project", tmp_path).stderr
