"""A training file of conversations in one of the usual formats, as people fine-tune on it.

Alpaca (`instruction`, `input`, `output`), ShareGPT (`conversations` with `from` and `value`), `messages` with `role`
and `content`, `prompt` with `completion`, `response` or `answer`, and preferences (`prompt`, `chosen`), of which the
chosen answer counts. JSON, JSON lines or Parquet.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.documents.file_formats import MAX_JSON_BYTES, MAX_LINE_BYTES, parquet_rows
from recovery.models.chat_template import Message

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "model": "assistant"}
ROLES |= {"system": "system"}
ANSWERS = ("completion", "output", "response", "answer", "chosen")
SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet")
MAX_ROWS = 20_000  # that are looked at


def read_training_file(path: Path) -> list[list[Message]]:
    """The conversations of a file; empty if it has none, such as a file of documents."""
    if not path.is_file() or path.suffix.lower() not in SUFFIXES:
        return []
    conversations = []
    for number, row in enumerate(islice(_rows(path), MAX_ROWS)):
        messages = conversation(row)
        if messages:
            conversations.append(messages)
        elif number == 0:
            return []
    return conversations


def conversation(row: Any) -> list[Message]:
    """The messages of one row, ending with an answer; empty if it is no conversation."""
    if not isinstance(row, dict):
        return []
    turns = next((row[name] for name in ("messages", "conversations", "conversation") if row.get(name)), None)
    if turns is None:
        answer = next((row[name] for name in ANSWERS if row.get(name)), None)
        turns = [*_turns(_question(row), "user"), *_turns(answer, "assistant")]
        prompt = row.get("prompt")
        if isinstance(prompt, list) and isinstance(answer, list) and answer[: len(prompt)] == prompt:
            turns = answer  # the chosen answer repeats the prompt
    messages = [message for turn in turns or [] for message in _message(turn)]
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return messages if any(message["role"] == "user" for message in messages) else []


def _question(row: dict[str, Any]) -> Any:
    question = next((row[name] for name in ("prompt", "instruction", "question") if row.get(name)), None)
    context = row.get("input")
    if isinstance(question, str) and isinstance(context, str) and context.strip():
        return f"{question}\n\n{context}"
    return question


def _turns(value: Any, role: str) -> list[Any]:
    if isinstance(value, str) and value.strip():
        return [{"role": role, "content": value}]
    return list(value) if isinstance(value, list) else []


def _message(turn: Any) -> Iterator[Message]:
    if not isinstance(turn, dict):
        return
    role = ROLES.get(str(turn.get("role") or turn.get("from") or ""))
    content = turn.get("content") or turn.get("value")
    if role and isinstance(content, str):
        yield {"role": role, "content": content}


def _rows(path: Path) -> Iterator[Any]:
    """The rows that can be read; what is wrong with the others is no matter here."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from parquet_rows(path)
        return
    try:
        if suffix == ".json" and path.stat().st_size <= MAX_JSON_BYTES:
            content = json.loads(path.read_bytes())
            yield from content if isinstance(content, list) else [content]
            return
    except (ValueError, RecursionError):  # perhaps JSON lines under another name
        pass
    with path.open("rb") as lines:
        while line := lines.readline(MAX_LINE_BYTES):
            try:
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else None
            except (ValueError, RecursionError):
                continue
            if row is not None:
                yield row
