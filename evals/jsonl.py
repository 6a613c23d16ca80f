"""JSON lines as users write them: what is wrong is said in one sentence, with the line it is on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

Row = tuple[str, dict[str, Any]]  # where it stands, for messages ("questions.jsonl, line 3"), and what it says


def read_rows(path: str | Path) -> list[Row]:
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecoverError(f"cannot read {path}: {error.strerror or error}") from error
    rows = list(_rows(path, content.removeprefix(b"\xef\xbb\xbf")))
    if not rows:
        raise RecoverError(f"{path} is empty; write one JSON object a line")
    return rows


def text_field(row: Row, name: str) -> str:
    """A field that must be there and say something; a number is taken as it is written."""
    where, values = row
    value = values.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise RecoverError(f'{where}: "{name}" is missing; every line needs it, as a text')
    return value


def _rows(path: Path, content: bytes) -> Iterator[Row]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        where = f"{path}, line {number}"
        try:
            text = line.decode("utf-8").strip()
            if not text:
                continue
            values = json.loads(text)
        except UnicodeDecodeError as error:
            raise RecoverError(f"{where}: not UTF-8 text; save the file as UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise RecoverError(f"{where}: not valid JSON ({error}); write one JSON object a line") from error
        if not isinstance(values, dict):
            raise RecoverError(f"{where}: not a JSON object; write one JSON object a line")
        yield where, values
