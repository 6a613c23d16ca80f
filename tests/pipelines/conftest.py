import logging
from pathlib import Path

import pytest

from pipelines.project.project import Project
from recovery.lab import BASE, make_world


@pytest.fixture(autouse=True)
def capture_progress(caplog: pytest.LogCaptureFixture) -> None:
    """Progress messages of the pipelines are in `caplog.messages`."""
    caplog.set_level(logging.INFO, logger="recover")


@pytest.fixture
def short_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are cut off: for tests that do not depend on how many of them pass or end."""
    monkeypatch.setattr("evals.suites.lab.WRITING_TOKENS", 24)
    monkeypatch.setattr("pipelines.turn_ends.LIMIT", 24)


@pytest.fixture
def empty_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for documents; the working directory has no project, and no base is configured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def docs(empty_docs: Path) -> Path:
    """A folder with sixty documents of a small world."""
    for number, document in enumerate(make_world(90, "quick").documents()[:60]):
        (empty_docs / f"{number:02d}.md").write_text(document.text)
    return empty_docs


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project on the built-in base."""
    project = Project.open(tmp_path, str(BASE))
    _ = project.id  # creates it in the record
    return project
