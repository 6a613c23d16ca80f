from pathlib import Path

import pytest

from recovery.lab import make_world


@pytest.fixture
def no_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For documents, in a place where nothing was begun and no base is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    made = tmp_path / "docs"
    made.mkdir()
    return made


@pytest.fixture
def docs(no_docs: Path) -> Path:
    """Sixty of a small world's."""
    for number, document in enumerate(make_world(90, "quick").documents()[:60]):
        (no_docs / f"{number:02d}.md").write_text(document.text)
    return no_docs
