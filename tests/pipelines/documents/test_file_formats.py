"""Documents and training files in the formats that people have them in."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents import file_formats, read_corpus
from pipelines.documents.file_formats import (
    Unreadable,
    conversation,
    documents_in,
    read_training_file,
    row_text,
    split_document,
)
from tests.pipelines.documents.make import every_format, with_libraries


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("bs4", "markdownify", "pypdf", "docx", "pyarrow"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("formats")
    every_format(folder)
    with_libraries(folder)
    return folder


def test_every_format_is_read(folder: Path) -> None:
    documents = {file.name: list(documents_in(file)) for file in folder.iterdir()}
    assert documents == {
        "plain.txt": ["Said in txt.\n\nTwice."],
        "plain.md": ["Said in md.\n\nTwice."],
        "plain.rst": ["Said in rst.\n\nTwice."],
        "wide.txt": ["Said in UTF-16."],
        "page.html": ["# A page\n\nSaid in **HTML**, linked.\n\n* one"],
        "table.csv": ["name: Ada\ntown: Oslo, west", "name: Bo"],
        "table.tsv": ["Head\n\nBody of it"],
        "rows.jsonl": ["Said in JSONL.", "a: 1\nc: [2]", "a bare line"],
        "list.json": ["Said in JSON.", "lone: \ud800"],
        "paper.pdf": ["Said in a PDF."],
        "rows.parquet": ["Said in Parquet."],
        "letter.docx": ["## A letter\n\nSaid in Word.\n\nleft | right"],
    }
    corpus = read_corpus(folder)
    assert corpus.files == len(documents)
    assert not corpus.skipped


def test_files_of_a_missing_library_are_skipped_with_a_hint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(file_formats.importlib, "import_module", missing)
    corpus = read_corpus(folder)
    reasons = {path.name: reason for path, reason in corpus.skipped}
    assert set(reasons) == {"page.html", "paper.pdf", "letter.docx", "rows.parquet"}
    assert all("recover[documents]" in reason for reason in reasons.values())


def test_broken_files_of_every_format_are_never_fatal(folder: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    (tmp_path / "good.txt").write_text("good")
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for number in range(12):
            broken = bytearray(content[: rng.randrange(len(content))] if number % 2 else content)
            for _ in range(rng.randint(1, 20)):
                if broken:
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
            (tmp_path / f"{file.stem}-{number}{file.suffix}").write_bytes(broken)
    corpus = read_corpus(tmp_path)
    assert "good" in list(corpus.texts)
    assert corpus.hash == read_corpus(tmp_path).hash
    assert all(reason for _, reason in corpus.skipped)


def test_a_document_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as bomb:
        for number in range(9):
            bomb.writestr(f"word/{number}.xml", bytes(8 << 20))
    with pytest.raises(Unreadable, match="unpacks to more than"):
        list(documents_in(tmp_path / "bomb.docx"))


def test_files_that_are_read_as_a_whole_have_a_size_limit(tmp_path: Path) -> None:
    for name, size in (("page.html", 17 << 20), ("list.json", 65 << 20)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        with pytest.raises(Unreadable, match="too large"):
            list(documents_in(tmp_path / name))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=30), max_size=12), st.integers(4, 40))
def test_the_parts_of_a_long_document_have_all_its_text(pieces: list[str], max_characters: int) -> None:
    parts = list(split_document(pieces, max_characters))
    assert all(0 < len(part) <= max_characters for part in parts)
    assert "".join("".join(parts).split()) == "".join("".join(pieces).split())
    if len(text := "".join(pieces)) <= max_characters:
        assert parts == [text.strip()][: bool(text.strip())]


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)), st.text())
def test_any_row_becomes_a_text(value: Any, name: str) -> None:
    assert isinstance(row_text(value), str)
    assert isinstance(row_text({name: value}), str)


USER, ASSISTANT = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
FORMATS: dict[str, dict[str, Any]] = {
    "alpaca": {"instruction": "Q", "input": "", "output": "A"},
    "sharegpt": {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
    "messages": {"messages": [USER, ASSISTANT]},
    "prompt and completion": {"prompt": "Q", "completion": "A"},
    "conversational completion": {"prompt": [USER], "completion": [ASSISTANT]},
    "preferences": {"prompt": [USER], "chosen": [ASSISTANT], "rejected": [{"role": "assistant", "content": "B"}]},
    "preferences with the prompt in both": {"prompt": [USER], "chosen": [USER, ASSISTANT], "rejected": [USER]},
    "question and answer": {"question": "Q", "answer": "A"},
    "a turn too many": {"messages": [USER, ASSISTANT, USER]},
}


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_each_format_becomes_the_same_messages(row: dict[str, Any]) -> None:
    assert conversation(row) == [USER, ASSISTANT]


def test_an_input_comes_below_its_instruction_and_a_system_prompt_stays() -> None:
    assert conversation({"instruction": "Q", "input": "context", "output": "A"})[0]["content"] == "Q\n\ncontext"
    system = {"role": "system", "content": "S"}
    assert conversation({"messages": [system, USER, ASSISTANT]}) == [system, USER, ASSISTANT]


@pytest.mark.parametrize("row", [{"text": "a document"}, {"messages": [USER]}, {"output": "A"}, "text", None, 3])
def test_what_has_no_question_and_answer_is_no_conversation(row: Any) -> None:
    assert conversation(row) == []


def test_json_json_lines_and_parquet_are_read_as_they_are(tmp_path: Path) -> None:
    rows = [FORMATS["alpaca"], FORMATS["alpaca"] | {"output": "B"}]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)))  # as Hugging Face's datasets writes it
    files = ["list.json", "lines.jsonl", "lines.json"]
    if pyarrow := pytest.importorskip("pyarrow"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "table.parquet")
        files.append("table.parquet")
    for file in files:
        answers = [messages[-1]["content"] for messages in read_training_file(tmp_path / file)]
        assert answers == ["A", "B"], file


def test_a_file_of_documents_has_no_conversations(tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "notes.md").write_text("# Notes")
    for path in (tmp_path / "documents.jsonl", tmp_path / "notes.md", tmp_path, tmp_path / "nothing.jsonl"):
        assert read_training_file(path) == []
