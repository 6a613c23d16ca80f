"""Turns of conversations, and files of rows."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SYSTEM = {"role": "system", "content": "Answer briefly."}


def exchange(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def write_jsonl(file: Path, rows: Iterable[Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
