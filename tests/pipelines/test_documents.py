from pathlib import Path

import pytest

from pipelines.documents import read_corpus
from recovery.errors import RecoverError


def test_a_folder_is_read_in_order_once_each_and_hashed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "b.md").write_text("two")
    (docs / "a.txt").write_text("\ufeffone")
    (docs / "deep" / "c.txt").write_text("two")
    corpus = read_corpus(docs)
    assert corpus.texts == ["one", "two"]
    assert corpus.hash == read_corpus(docs).hash
    (docs / "b.md").write_text("other")
    assert corpus.hash != read_corpus(docs).hash


def test_what_cannot_be_read_is_listed_and_never_fatal(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (docs / "good.txt").write_text("good")
    (docs / "empty.txt").write_text("  ")
    (docs / "broken.txt").write_bytes(b"\xff\xfe\xff")
    (docs / "picture.png").write_bytes(b"png")
    (docs / "link.txt").symlink_to(tmp_path / "secret.txt")
    (docs / ".git").mkdir()
    (docs / ".git" / "config.txt").write_text("hidden")
    corpus = read_corpus(docs)
    assert corpus.texts == ["good"]
    reasons = {path.name: reason for path, reason in corpus.skipped}
    assert set(reasons) == {"empty.txt", "broken.txt", "picture.png", "link.txt"}
    assert "leads out" in reasons["link.txt"]


def test_nothing_to_read_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="there is nothing at"):
        read_corpus(tmp_path / "nowhere")
    with pytest.raises(RecoverError, match="no readable document"):
        read_corpus(tmp_path)
