from pathlib import Path

import pytest

from pipelines.corpora import keep, kept, must_be_kept
from pipelines.documents import read_corpus
from recovery.errors import RecoverError


def test_what_was_read_stays_whatever_becomes_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("line one\nline \u2028 two")
    (tmp_path / "docs" / "b.md").write_text("ünïcode")
    corpus = read_corpus(tmp_path / "docs")
    texts = list(corpus.texts)
    keep(tmp_path / "home", corpus)
    (tmp_path / "docs" / "a.txt").unlink()
    found = kept(tmp_path / "home", corpus.hash, corpus.path, corpus.files)
    assert found is not None
    assert list(found.texts) == texts
    assert kept(tmp_path / "home", "0" * 64, corpus.path, 1) is None
    with pytest.raises(RecoverError, match="give them again with --docs"):
        must_be_kept(tmp_path / "home", "0" * 64, corpus.path, 1)
