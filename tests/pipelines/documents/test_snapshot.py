from pathlib import Path

import pytest

from evals.suites.training_texts import read_passages
from pipelines.documents import read_corpus
from pipelines.documents.corpus import load_snapshot, require_snapshot, sample_passages, save_snapshot
from recovery.errors import RecoverError


def test_a_snapshot_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("line one\nline \u2028 two")
    (tmp_path / "docs" / "b.md").write_text("ünïcode")
    corpus = read_corpus(tmp_path / "docs")
    texts = list(corpus.texts)
    save_snapshot(tmp_path / "home", corpus)
    (tmp_path / "docs" / "a.txt").unlink()
    snapshot = load_snapshot(tmp_path / "home", corpus.hash, corpus.path, corpus.files)
    assert snapshot is not None
    assert list(snapshot.texts) == texts
    assert load_snapshot(tmp_path / "home", "0" * 64, corpus.path, 1) is None
    with pytest.raises(RecoverError, match="Give them again with --docs"):
        require_snapshot(tmp_path / "home", "0" * 64, corpus.path, 1)


def test_a_sample_is_evenly_spaced_and_written_once(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for i in range(30):
        (tmp_path / "docs" / f"{i:02}.txt").write_text(f"The {'very ' * i} long story of number {i}.")
    corpus = save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))
    sample = read_passages(sample_passages(tmp_path / "home", corpus, count=10))
    texts = list(corpus.texts)
    assert [texts.index(text) for text in sample] == list(range(0, 30, 3))
    assert read_passages(sample_passages(tmp_path / "home", corpus, count=10)) == sample
