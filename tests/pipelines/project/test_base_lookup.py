from pathlib import Path

import pytest

from pipelines.project.base_lookup import Base, resolve_base
from recovery.errors import RecoverError
from recovery.lab import BASE


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
