"""Read a user's JSON Lines file; every error names the line and says what to change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

Row = tuple[str, dict[str, Any]]  # the row's location, for messages ("Line 3 of questions.jsonl"), and its fields


def read_rows(path: str | Path) -> list[Row]:
    path = Path(path)
    if path.is_dir():
        raise RecoverError(f"{path} is a folder. Name a JSONL file.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecoverError(
            f"Cannot read {path}: {error.strerror or error}. Check the path and its permissions."
        ) from error
    rows = list(_rows(path, content.removeprefix(b"\xef\xbb\xbf")))
    if not rows:
        raise RecoverError(f"The file {path} is empty. Write one JSON object per line.")
    return rows


def text_field(row: Row, *names: str) -> str:
    """Return a required, non-blank text field: the first of these that the row has. A number becomes its text."""
    location, fields = row
    value = next((fields[name] for name in names if name in fields), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        wanted = " or ".join(f'"{name}"' for name in names)
        raise RecoverError(f"{location} has no {wanted}. Every line needs it, as a text.")
    return value


def whole_characters(value: Any) -> Any:
    """A JSON value in which half a character, as of a text that was cut inside an emoji, is �.

    No tokenizer reads the half, and no file can hold it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole_characters(name): whole_characters(item) for name, item in value.items()}
    return [whole_characters(item) for item in value] if isinstance(value, list) else value


def _rows(path: Path, content: bytes) -> Iterator[Row]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        location = f"Line {number} of {path}"
        try:
            text = line.decode("utf-8").strip()
            if not text:
                continue
            fields = json.loads(text)
        except UnicodeDecodeError as error:
            raise RecoverError(f"{location} is not UTF-8 text. Save the file as UTF-8.") from error
        except (ValueError, RecursionError) as error:
            raise RecoverError(f"{location} is not valid JSON ({error}). Write one JSON object per line.") from error
        if not isinstance(fields, dict):
            raise RecoverError(f"{location} is not a JSON object. Write one JSON object per line.")
        yield location, whole_characters(fields)
