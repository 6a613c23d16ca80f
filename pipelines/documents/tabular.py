"""Tables: every row is a document. A row that has a text is that text, any other is its fields with their names."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.documents.optional_libraries import library
from pipelines.documents.splitting import Unreadable, parted

TEXTS = ("text", "content", "document", "passage", "body", "article", "markdown")
WHOLE = 64 << 20  # bytes of a .json file, which has to be read as a whole
ROWS_AT_ONCE = 64
LONGEST_LINE = 16 << 20


def row_text(row: Any) -> str:
    if isinstance(row, dict):
        named = {str(name).lower(): value for name, value in row.items()}
        body = next((named[t] for t in TEXTS if isinstance(named.get(t), str) and named[t].strip()), None)
        if body is None:
            return "\n".join(f"{name}: {_plain(value)}" for name, value in row.items() if _says_something(value))
        title = named.get("title")
        return f"{title}\n\n{body}" if isinstance(title, str) and title.strip() and title not in body else body
    return _plain(row)


def documents_of(rows: Iterable[Any]) -> Iterator[str]:
    for row in rows:
        yield from parted([row_text(row)])


def read_csv(file: Path) -> Iterator[str]:
    csv.field_size_limit(LONGEST_LINE)
    with file.open(encoding="utf-8-sig", newline="") as text:
        try:
            header = text.readline(LONGEST_LINE)
            delimiter = max(",;\t", key=header.count)
            lines = chain([header], iter(lambda: text.readline(LONGEST_LINE), ""))
            yield from documents_of(csv.DictReader(lines, delimiter=delimiter, restkey="more"))
        except UnicodeError as error:
            raise Unreadable("it is not UTF-8 text; save it as UTF-8") from error
        except csv.Error as error:
            raise Unreadable(f"it is not a table of comma-separated values: {error}") from error


def read_json(file: Path) -> Iterator[str]:
    """An object, or a list of them."""
    if file.stat().st_size > WHOLE:
        raise Unreadable(f"it is over {WHOLE >> 20} MB, too large to read as a whole; write one object a line (.jsonl)")
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not valid JSON: {error}") from error
    yield from documents_of(found if isinstance(found, list) else [found])


def read_jsonl(file: Path) -> Iterator[str]:
    """A line that is not JSON is left out, and all such are told of at the end."""
    wrong: list[int] = []
    with file.open("rb") as raw:
        number = 0
        while line := raw.readline(LONGEST_LINE):
            number += 1
            try:
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else ""
            except (ValueError, RecursionError):
                wrong.append(number)
                continue
            yield from documents_of([row])
    if wrong:
        raise Unreadable(f"{len(wrong)} of its {number} lines are not JSON; the first is line {wrong[0]}")


def read_parquet(file: Path) -> Iterator[str]:
    parquet = library("pyarrow.parquet")
    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=ROWS_AT_ONCE):
            yield from documents_of(batch.to_pylist())


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _says_something(value: Any) -> bool:
    return value is not None and value not in ("", [], {}) and not isinstance(value, bytes)
