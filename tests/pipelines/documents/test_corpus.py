import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.suites.training_texts import read_passages
from pipelines.documents.corpus import (
    MAX_LINES,
    SAMPLE_CHARACTERS,
    CorpusSnapshot,
    Texts,
    load_snapshots,
    read_corpus,
    sample_passages,
    save_snapshot,
)
from recovery.errors import RecoverError


def test_a_folder_is_read_in_order_once_each_and_hashed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "b.md").write_text("two")
    (docs / "a.txt").write_text("\ufeffone")
    (docs / "deep" / "c.txt").write_text("two")
    corpus = read_corpus(docs)
    assert list(corpus.texts) == ["one", "two"]
    assert (corpus.files, corpus.texts.copies, corpus.texts.characters) == (2, 1, 6)
    assert corpus.source(1) == str(docs / "b.md")
    assert corpus.hash == read_corpus(docs).hash
    (docs / "b.md").write_text("other")
    assert corpus.hash != read_corpus(docs).hash
    assert list(corpus.texts) == ["one", "two"]  # the corpus that was read does not change


def test_unreadable_files_are_listed_and_never_fatal(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (docs / "good.txt").write_text("good")
    (docs / "empty.txt").write_text("  ")
    (docs / "broken.txt").write_bytes(b"\xff\xfe\xff")
    (docs / "binary.txt").write_bytes(b"text\0text")
    (docs / "picture.png").write_bytes(b"png")
    (docs / "fake.docx").write_bytes(b"no zip")
    (docs / "fake.pdf").write_bytes(b"no pdf")
    (docs / "half.jsonl").write_text('{"text": "kept"}\n{"text": \n')
    (docs / ".git").mkdir()
    (docs / ".git" / "config.txt").write_text("hidden")
    os.mkfifo(docs / "pipe.txt")
    os.mkfifo(docs / "pipe.json")
    corpus = read_corpus(docs)
    assert list(corpus.texts) == ["good", "kept"]
    reasons = {path.name: reason for path, reason in corpus.skipped}
    assert set(reasons) == {
        *("empty.txt", "broken.txt", "binary.txt", "picture.png", "fake.docx", "fake.pdf", "half.jsonl", "pipe.txt"),
        "pipe.json",
    }
    assert "the first is line 2 (what could be read is included)" in reasons["half.jsonl"]
    assert "UTF-8" in reasons["broken.txt"]


def test_files_that_cannot_be_read_are_named_before_those_of_other_formats(tmp_path: Path) -> None:
    (tmp_path / "half.jsonl").write_text('{"text": "kept"}\n{"text": \n')
    for name in ("a.py", "b.py", "c.png", "LICENSE"):
        (tmp_path / name).write_text("code")
    for number in range(MAX_LINES):
        (tmp_path / f"{number:02}.txt").write_bytes(b"Caf\xe9")
    corpus = read_corpus(tmp_path)
    *unread, more, others = corpus.skipped_lines()
    assert unread == [f"Skipped {number:02}.txt: not UTF-8 text; save it as UTF-8" for number in range(MAX_LINES)]
    assert (more, others) == ("And 1 more file", "Skipped 4 files of other formats: .py 2, no suffix 1, .png 1")
    assert corpus.unread == len(corpus.skipped) - 1
    (tmp_path / "00.txt").unlink()
    line = "Read a part of half.jsonl: 1 of 2 lines are not JSON; the first is line 2"
    assert read_corpus(tmp_path).skipped_lines()[-2:] == [line, others]


def test_links_out_of_the_folder_and_circular_links_are_skipped(tmp_path: Path) -> None:
    docs, outside = tmp_path / "docs", tmp_path / "outside"
    docs.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (docs / "good.txt").write_text("good")
    (docs / "to-file.txt").symlink_to(outside / "secret.txt")
    (docs / "to-folder").symlink_to(outside)
    (docs / "up.txt").symlink_to("../outside/secret.txt")
    (docs / "circle").symlink_to(docs)
    (docs / "lost.txt").symlink_to(tmp_path / "nowhere")
    (docs / "itself.txt").symlink_to(docs / "itself.txt")
    corpus = read_corpus(docs)
    assert list(corpus.texts) == ["good"]
    reasons = {path.name: reason for path, reason in corpus.skipped}
    outside = {name for name, reason in reasons.items() if "outside the folder" in reason}
    assert outside == {"to-file.txt", "to-folder", "up.txt"}
    assert "a link to a folder" in reasons["circle"]
    assert "broken" in reasons["lost.txt"]
    assert "broken" in reasons["itself.txt"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a b", "A  B\n", "ab", "c", "ä", "Ä", "ss", "ß", ""]), min_size=1, max_size=20))
def test_copies_are_all_but_the_first_of_texts_that_differ_in_case_and_white_space_alone(added: list[str]) -> None:
    texts = Texts()
    for text in added:
        texts.add(text, 0)
    flat = [" ".join(text.casefold().split()) for text in added]
    assert list(texts) == [text for i, text in enumerate(added) if flat[i] not in flat[:i]]
    assert texts.copies == len(added) - len(texts)


def test_a_data_set_of_the_hub_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    calls: list[object] = []

    def load(name: str, **options: object) -> list[dict[str, str]]:
        calls.extend([name, options["revision"], options["split"]])
        return [{"text": "one"}, {"text": "two"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert list(read_corpus(Path("some/notes@v1:test")).texts) == ["one", "two"]
    assert calls == ["some/notes", "v1", "test"]

    def missing(name: str, **options: object) -> None:
        raise FileNotFoundError("no such data set\nand more")

    monkeypatch.setattr(datasets, "load_dataset", missing)
    with pytest.raises(RecoverError, match=r"data set of the hub \(no such data set\). Give a folder"):
        read_corpus(Path("some/notes"))

    def gated(name: str, **options: object) -> None:
        raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{name}' is a gated dataset on the Hub. You must …")

    monkeypatch.setattr(datasets, "load_dataset", gated)
    with pytest.raises(RecoverError, match=r"have not been accepted\). Accept them on its page of the hub, and log in"):
        read_corpus(Path("some/notes"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RecoverError, match="cannot be reached"):
        read_corpus(Path("some/notes"))


def snapshot_of(folder: Path, *texts: str) -> CorpusSnapshot:
    (folder / "docs").mkdir()
    for number, text in enumerate(texts):
        (folder / "docs" / f"{number:02}.txt").write_text(text)
    return save_snapshot(folder / "home", read_corpus(folder / "docs"))


def test_a_snapshot_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    texts = ["line one\nline \u2028 two", "ünïcode"]
    saved = snapshot_of(tmp_path, *texts)
    (tmp_path / "docs" / "00.txt").unlink()
    (loaded,) = load_snapshots(tmp_path / "home", ["0" * 64, saved.hash])
    assert list(loaded.texts) == texts


def test_a_sample_has_the_beginning_of_a_long_document(tmp_path: Path) -> None:
    corpus = snapshot_of(tmp_path, "\n\n".join(f"Paragraph {i} of a long book." for i in range(5_000)))
    [passage] = read_passages(sample_passages(tmp_path / "home", corpus))
    assert SAMPLE_CHARACTERS / 2 < len(passage) <= SAMPLE_CHARACTERS
    assert next(iter(corpus.texts)).startswith(passage)
    assert passage.endswith("book.")


def test_a_sample_is_evenly_spaced_and_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.documents.corpus.SAMPLE_DOCUMENTS", 10)
    corpus = snapshot_of(tmp_path, *(f"The {'very ' * i} long story of number {i}." for i in range(30)))
    sample = read_passages(sample_passages(tmp_path / "home", corpus))
    texts = list(corpus.texts)
    assert [texts.index(text) for text in sample] == list(range(0, 30, 3))
    assert read_passages(sample_passages(tmp_path / "home", corpus)) == sample


def test_where_no_document_can_be_read_the_reasons_are_said(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"Caf\xe9 is good.")
    (tmp_path / "empty.md").write_text("")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("code")
    with pytest.raises(
        RecoverError,
        match=r"\(empty.md: empty; latin.txt: not UTF-8 text.*; a.py: not a supported format\)\. Supported formats",
    ):
        read_corpus(tmp_path)
