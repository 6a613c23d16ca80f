"""Training files in the formats that people have them in."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.documents.file_formats import conversation, read_training_file

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
