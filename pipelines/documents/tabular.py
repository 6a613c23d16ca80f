"""Tables: every row is a document. It is the row's text field, or else all its fields with their names."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.documents.optional_libraries import import_optional
from pipelines.documents.splitting import Unreadable, split_document

TEXT_FIELDS = ("text", "content", "document", "passage", "body", "article", "markdown")
MAX_JSON_BYTES = 64 << 20  # of a .json file, which must be read as a whole
BATCH_ROWS = 64
MAX_LINE_BYTES = 16 << 20


def row_text(row: Any) -> str:
    if isinstance(row, dict):
        fields = {str(name).lower(): value for name, value in row.items()}
        body = next((fields[t] for t in TEXT_FIELDS if isinstance(fields.get(t), str) and fields[t].strip()), None)
        if body is None:
            return "\n".join(f"{name}: {_as_text(value)}" for name, value in row.items() if _has_content(value))
        title = fields.get("title")
        return f"{title}\n\n{body}" if isinstance(title, str) and title.strip() and title not in body else body
    return _as_text(row)


def row_documents(rows: Iterable[Any]) -> Iterator[str]:
    for row in rows:
        yield from split_document([row_text(row)])


def read_csv(file: Path) -> Iterator[str]:
    csv.field_size_limit(MAX_LINE_BYTES)
    with file.open(encoding="utf-8-sig", newline="") as text:
        try:
            header = text.readline(MAX_LINE_BYTES)
            delimiter = max(",;\t", key=header.count)
            lines = chain([header], iter(lambda: text.readline(MAX_LINE_BYTES), ""))
            yield from row_documents(csv.DictReader(lines, delimiter=delimiter, restkey="more"))
        except UnicodeError as error:
            raise Unreadable("not UTF-8 text; save it as UTF-8") from error
        except csv.Error as error:
            raise Unreadable(f"not a table of comma-separated values: {error}") from error


def read_json(file: Path) -> Iterator[str]:
    """An object, or a list of them."""
    if file.stat().st_size > MAX_JSON_BYTES:
        raise Unreadable(f"over {MAX_JSON_BYTES >> 20} MB, too large; save it as .jsonl, with one object in each line")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON: {error}") from error
    yield from row_documents(content if isinstance(content, list) else [content])


def read_jsonl(file: Path) -> Iterator[str]:
    """Skip lines that are not JSON, and report them by raising Unreadable at the end."""
    invalid: list[int] = []
    with file.open("rb") as raw:
        number = 0
        while line := raw.readline(MAX_LINE_BYTES):
            number += 1
            try:
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else ""
            except (ValueError, RecursionError):
                invalid.append(number)
                continue
            yield from row_documents([row])
    if invalid:
        raise Unreadable(f"{len(invalid)} of {number} lines are not JSON; the first is line {invalid[0]}")


def read_parquet(file: Path) -> Iterator[str]:
    parquet = import_optional("pyarrow.parquet")
    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=BATCH_ROWS):
            yield from row_documents(batch.to_pylist())


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _has_content(value: Any) -> bool:
    return value is not None and value not in ("", [], {}) and not isinstance(value, bytes)
