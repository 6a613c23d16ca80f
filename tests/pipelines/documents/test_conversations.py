import csv
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.documents import conversations, file_formats
from pipelines.documents.conversations import (
    read_training_file,
    read_training_files,
    tools_of,
    training_conversation,
    turns_of,
)
from pipelines.documents.corpus import read_corpus
from recovery.errors import RecoverError

USER, ASSISTANT = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
FORMATS: dict[str, dict[str, Any]] = {
    "alpaca": {"instruction": "Q", "input": "", "output": "A"},
    "sharegpt": {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
    "messages": {"messages": [USER, ASSISTANT]},
    "prompt and completion": {"prompt": "Q", "completion": "A"},
    "conversational completion": {"prompt": [USER], "completion": [ASSISTANT]},
    "preferences": {"prompt": [USER], "chosen": [ASSISTANT], "rejected": [{"role": "assistant", "content": "B"}]},
    "preferences beside turns": {"conversations": [{"from": "human", "value": "Q"}], "chosen": ASSISTANT},
    "preferences with turns in both": {"messages": [USER], "chosen": [USER, ASSISTANT], "rejected": [USER]},
    "preferences with a text": {"prompt": "Q", "chosen": [USER, ASSISTANT], "rejected": [USER]},
    "parts of text": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, ASSISTANT]},
    "preferences with the prompt in both": {"prompt": [USER], "chosen": [USER, ASSISTANT], "rejected": [USER]},
    "question and answer": {"question": "Q", "answer": "A"},
    "roles in capitals": {"conversations": [{"from": "User", "value": "Q"}, {"role": "Assistant", "content": "A"}]},
    "a turn too many": {"messages": [USER, ASSISTANT, USER]},
}


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_each_format_becomes_the_same_messages(row: dict[str, Any]) -> None:
    assert training_conversation(row) == {"messages": [USER, ASSISTANT]}


SYSTEM = {"role": "system", "content": "S"}


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(texts), texts)]  # noqa: B905


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        (FORMATS["sharegpt"] | {"system": "S"}, [SYSTEM, *turns("Q", "A")]),
        ({"question": "Q", "answer": "A", "system_prompt": "S"}, [SYSTEM, *turns("Q", "A")]),
        ({"messages": [USER, ASSISTANT], "system": [{"type": "text", "text": "S"}]}, [SYSTEM, *turns("Q", "A")]),
        ({"messages": [SYSTEM, USER, ASSISTANT], "system": "other"}, [SYSTEM, *turns("Q", "A")]),
        ({"messages": [SYSTEM | {"role": "developer"}, USER, ASSISTANT]}, [SYSTEM, *turns("Q", "A")]),
        ({"instruction": "Q", "input": "I", "output": "A"}, turns("Q\n\nI", "A")),
        ({"instruction": "Q", "input": 7, "output": "A"}, turns("Q\n\n7", "A")),
        ({"instruction": "Q", "input": float("nan"), "output": "A", "functions": "math"}, turns("Q", "A")),
        ({"instruction": "Q", "input": {"à": [1, 2]}, "output": "A"}, turns('Q\n\n{"à": [1, 2]}', "A")),
        ({"prompt": "Q", "response": "A", "history": [["q", "a"]]}, turns("q", "a", "Q", "A")),
        ({"prompt": "Q", "response": "A", "history": turns("q", "a")}, turns("q", "a", "Q", "A")),
        ({"question": "Q", "context": "C", "answer": "A"}, turns("C\n\nQ", "A")),
        ({"instruction": "Q", "input": "I", "context": ["C", "D"], "output": "A"}, turns("C\n\nD\n\nQ\n\nI", "A")),
        ({"prompt": "Q", "completion": "A", "label": True, "images": []}, turns("Q", "A")),
        ({"prompt": "Q", "completion": "A", "label": 1, "kto_tag": None}, turns("Q", "A")),
        ({"prompt": "Q", "chosen": "A", "rejected": "B", "label": 0}, turns("Q", "A")),
        ({"messages": [USER, ASSISTANT], "label": 0}, [USER, ASSISTANT]),
    ],
)
def test_what_a_row_says_beside_its_question_is_read(row: dict[str, Any], messages: list[Any]) -> None:
    assert training_conversation(row) == {"messages": messages}


def test_the_context_of_a_prompt_is_for_its_teacher_alone() -> None:
    assert turns_of({"prompt": "Q", "context": "C"}) == turns("Q")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Q", "completion": "B", "label": False},
        {"prompt": "Q", "completion": "B", "label": 0},
        {"prompt": "Q", "completion": "B", "label": "False"},
        {"messages": [USER, ASSISTANT], "kto_tag": False},
        {"messages": [USER, ASSISTANT], "kto_tag": 0},
        {"messages": [USER, ASSISTANT], "label": "False"},
        {"messages": [USER, ASSISTANT], "images": ["a.png"]},
        {"conversations": [USER, ASSISTANT], "audios": ["a.mp3"]},
        {"messages": [USER, ASSISTANT | {"weight": 0}]},
        {"messages": [USER, ASSISTANT | {"train": False}]},
        {"prompt": "Q", "completion": "A", "history": "they had talked"},
        {"prompt": "Q", "completion": "A", "context": {"title": "C"}},
    ],
)
def test_a_row_that_is_not_to_be_learned_is_left_out_and_counted(
    row: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, [row, FORMATS["messages"]])))
    assert read_training_file(tmp_path / "f.jsonl") == [FORMATS["messages"]]
    assert "Left out 1 of 2 rows of" in caplog.text


CALL = {"type": "function", "function": {"name": "sum", "arguments": {"of": [1, 2]}}}
CALLING = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "3"},
    ASSISTANT,
]
TOOLS = [{"type": "function", "function": {"name": "sum", "parameters": {}}}]
AS_TEXT = {"name": "sum", "arguments": '{"of": [1, 2]}'}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": CALLING, "tools": TOOLS},
        {  # as an API returns it, and as a table stores it
            "messages": [
                {**USER, "tool_calls": None},
                {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": AS_TEXT}]},
                {"role": "tool", "content": "3", "tool_calls": None},
                ASSISTANT,
            ],
            "tools": json.dumps(TOOLS),
        },
        {
            "messages": [USER, {"role": "assistant", "content": None, "function_call": AS_TEXT}, *CALLING[2:]],
            "tools": TOOLS,
        },
        {
            "messages": [USER, {"role": "assistant", "content": None, "function_call": AS_TEXT}, *CALLING[2:]],
            "functions": [TOOLS[0]["function"]],
            "tools": [],
        },
        {
            "conversations": [
                {"from": "human", "value": "Q"},
                {"from": "function_call", "value": json.dumps({"name": "sum", "arguments": {"of": [1, 2]}})},
                {"from": "observation", "value": "3"},
                {"from": "gpt", "value": "A"},
            ],
            "tools": json.dumps(TOOLS),
        },
    ],
    ids=["messages", "null and JSON texts", "function_call", "functions", "sharegpt"],
)
def test_calls_of_tools_and_their_results_keep_their_turns(row: dict[str, Any]) -> None:
    assert training_conversation(row) == {"messages": CALLING, "tools": TOOLS}


@pytest.mark.parametrize(
    "turn",
    [{"role": "assistant", "content": None}, {"role": "user", "content": [{"type": "image"}]}, {"content": "?"}, "?"],
)
def test_a_turn_that_cannot_be_read_is_an_error(turn: Any) -> None:
    with pytest.raises(ValueError, match="no valid"):
        turns_of({"messages": [USER, turn, ASSISTANT]})


def test_a_first_row_without_an_answer_and_half_a_character_cost_no_other_row(tmp_path: Path) -> None:
    cut = {"messages": [USER, {"role": "assistant", "content": "Well done \ud83d"}]}
    rows = [{"messages": [USER]}, cut, FORMATS["messages"]]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = read_training_file(tmp_path / "f.jsonl")
    assert [row["messages"][-1]["content"] for row in read[:1]] == ["Well done \N{REPLACEMENT CHARACTER}"]
    assert read[1:] == [FORMATS["messages"]]


@pytest.mark.parametrize(
    "first",
    [
        {"messages": []},
        {"messages": [USER, {"role": "assistant", "content": None}, ASSISTANT]},
        {"conversations": [{"from": "gpt", "value": "A"}]},
        {"instruction": None, "input": "", "output": "A"},
        {"prompt": "", "chosen": "A"},
        {"prompt": "Hi"},
        {},
        {"note": ""},
    ],
)
def test_an_empty_first_row_makes_no_documents_of_the_others(
    first: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text("\n".join(map(json.dumps, [first, first, FORMATS["messages"]])))
    assert read_training_file(file) == [FORMATS["messages"]]
    assert "Left out 2 of 3 rows" in caplog.text
    file.write_text(json.dumps(first))
    with pytest.raises(RecoverError, match=r"No row of .*f\.jsonl holds a conversation .*\. Give"):
        read_training_file(file)
    file.write_text(json.dumps(first | {"text": "A document"}))
    assert read_training_file(file) == []


def test_empty_rows_before_documents_make_no_training_file_of_them(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text("{}\n" * 40 + '{"headline": "A day", "abstract": "It was one."}\n')
    assert read_training_file(tmp_path / "f.jsonl") == []


@pytest.mark.parametrize("tools", ["[]", "null", " ", "{}", [], None])
def test_no_tools_are_no_tools_however_a_table_writes_them(tools: Any) -> None:
    assert training_conversation(FORMATS["messages"] | {"tools": tools}) == FORMATS["messages"]


@pytest.mark.parametrize("tools", ["none of JSON", {"name": "f"}, '{"name": "f"}', 3])
def test_tools_that_are_no_list_are_an_error(tools: Any) -> None:
    with pytest.raises(ValueError, match="tools"):
        tools_of({"tools": tools})


@pytest.mark.parametrize(
    "row",
    [{"text": "a document"}, {"messages": [USER]}, {"output": "A"}, {"input": "Q", "output": "A"}, "text", None, 3],
)
def test_what_has_no_question_and_answer_is_no_conversation(row: Any) -> None:
    assert training_conversation(row) is None


def test_json_json_lines_parquet_and_csv_are_read_as_they_are(tmp_path: Path) -> None:
    rows = [FORMATS["alpaca"], FORMATS["alpaca"] | {"output": "B"}]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)))  # as Hugging Face's datasets writes it
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "table.parquet")
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows[0].keys(), *(row.values() for row in rows)])
    for file in ("list.json", "lines.jsonl", "lines.json", "table.parquet", "table.csv"):
        answers = [row["messages"][-1]["content"] for row in read_training_file(tmp_path / file)]
        assert answers == ["A", "B"], file


def test_rows_that_cannot_be_read_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = json.dumps(FORMATS["alpaca"] | {"output": "caf\u00e9"}, ensure_ascii=False)
    (tmp_path / "mixed.jsonl").write_bytes(f"{row}\n".encode() + f"{row}\n".encode("cp1252"))
    assert len(read_training_file(tmp_path / "mixed.jsonl")) == 1
    assert "1 of 2 lines are not JSON; the first is line 2" in caplog.text
    (tmp_path / "large.json").write_text(json.dumps([json.loads(row)], indent=1))
    monkeypatch.setattr(file_formats, "MAX_JSON_BYTES", 10)
    with pytest.raises(RecoverError, match=r"large\.json cannot be read: over 0 MB, too large; save it as \.jsonl"):
        read_training_file(tmp_path / "large.json")


def test_a_file_of_documents_has_no_conversations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "documents.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "labelled.jsonl").write_text('{"text": "one", "label": false, "image": {"path": "a.png"}}\n')
    (tmp_path / "notes.md").write_text("# Notes")
    for name in ("documents.jsonl", "labelled.jsonl", "notes.md", "", "nothing.jsonl"):
        assert read_training_file(tmp_path / name) == []
    assert not caplog.text


def test_a_folder_of_training_files_alone_is_read_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("messages.jsonl", "deep/alpaca.json"):
        (tmp_path / name).write_text(json.dumps(FORMATS[Path(name).stem]))
    (tmp_path / "loss.png").write_bytes(b"png")
    (tmp_path / "README.md").write_text("# Our answers")
    assert read_training_files(tmp_path) == [FORMATS["messages"]] * 2
    assert not caplog.text
    for name, text in (("notes.md", "# Notes"), ("texts.jsonl", '{"text": "one"}')):
        (tmp_path / name).write_text(text)
        assert read_training_files(tmp_path) == [], name
        (tmp_path / name).unlink()
    (tmp_path / "wrong.json").write_text(json.dumps([{"prompt": "Q", "completion": "A", "label": False}]))
    with pytest.raises(RecoverError, match=r"wrong\.json"):
        read_training_files(tmp_path)
    for name in ("messages.jsonl", "deep/alpaca.json"):
        (tmp_path / name).unlink()
    with pytest.raises(RecoverError, match=r"wrong\.json"):  # as documents they would be taught as texts
        read_training_files(tmp_path)


def test_a_table_without_answers_is_one_of_documents(tmp_path: Path) -> None:
    for text in ("id,conversation\n1,A: Hello. B: Hi.\n", "question,explanation\nWhy?,Because.\n"):
        (tmp_path / "table.csv").write_text(text)
        assert read_training_files(tmp_path) == []
        assert len(read_corpus(tmp_path).texts) == 1


def test_conversations_among_documents_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes.md").write_text("messages: [{}]")
    texts = [FORMATS["messages"] | {"text": "one"}, {"question": "Q?", "note": "no answer"}]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    assert len(read_corpus(tmp_path).texts) == 3
    assert not caplog.text
    (tmp_path / "chats.jsonl").write_text("\n".join(json.dumps({"id": n} | row) for n, row in FORMATS.items()))
    assert len(read_corpus(tmp_path).texts) == 3 + len(FORMATS)
    assert f"Read as plain text {len(FORMATS)} rows of conversations in" in caplog.text
    assert "name their file as --conversations (of check and repair" in caplog.text
    (tmp_path / "table.csv").write_text("instruction,output\nQ?,A\n")
    read_corpus(tmp_path)
    assert f"Read as plain text {len(FORMATS) + 1} rows of conversations in" in caplog.text


@pytest.mark.parametrize("empty", [9, 10, 11])
def test_no_more_than_so_many_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: int) -> None:
    monkeypatch.setattr(conversations, "MAX_ROWS", 10)
    rows = [{"prompt": f"q{i}", "completion": f"a{i}"} for i in range(20)]
    rows[empty] = {}
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert len(read_training_file(tmp_path / "f.jsonl")) == 10 - (empty < 10)
