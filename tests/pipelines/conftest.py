from pathlib import Path

import pytest


@pytest.fixture
def no_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For documents, in a place where nothing was begun and no base is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    made = tmp_path / "docs"
    made.mkdir()
    return made
