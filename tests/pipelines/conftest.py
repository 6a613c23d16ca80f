import logging
from pathlib import Path

import pytest

from recovery.lab import make_world

FEW = (
    "midtrain.max_steps=4",
    "midtrain.rows=2",
    "midtrain.mix.texts=0",
    "distill.prompts=20",
    "distill.max_new_tokens=60",
    "distill.probe_items=6",
)


@pytest.fixture(autouse=True)
def progress_is_captured(caplog: pytest.LogCaptureFixture) -> None:
    """What the pipelines log is in `caplog.messages`."""
    caplog.set_level(logging.INFO, logger="recover")


@pytest.fixture
def no_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For documents, in a place where nothing was begun and no base is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    made = tmp_path / "docs"
    made.mkdir()
    return made


@pytest.fixture
def tunes_answers(docs: Path, tmp_path: Path) -> list[str]:
    """What is typed for a small mid-training that finds its share of replay by trying."""
    make_world(90, "quick").write(tmp_path / "world")
    typed = ["midtrain", "--docs", str(docs), "--questions", str(tmp_path / "world" / "questions.jsonl")]
    return [*typed, "--set", "midtrain.mix.answers=auto", *(word for each in FEW for word in ("--set", each))]


@pytest.fixture
def docs(no_docs: Path) -> Path:
    """Sixty of a small world's."""
    for number, document in enumerate(make_world(90, "quick").documents()[:60]):
        (no_docs / f"{number:02d}.md").write_text(document.text)
    return no_docs
