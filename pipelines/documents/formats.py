"""A reader for each kind of file: a path in, documents out, one after the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.documents import markup
from pipelines.documents import tabular as rows
from pipelines.documents.splitting import LONGEST, Unreadable, parted

Reader = Callable[[Path], Iterator[str]]

UTF16_MARKS = {b"\xff\xfe", b"\xfe\xff"}


def read_text(file: Path) -> Iterator[str]:
    """Plain text, Markdown and reStructuredText as they stand."""
    with file.open("rb") as raw:
        encoding = "utf-16" if raw.read(2) in UTF16_MARKS else "utf-8-sig"
    with file.open(encoding=encoding) as text:
        try:
            yield from parted(iter(lambda: text.read(LONGEST), ""))
        except UnicodeError as error:
            raise Unreadable("it is not UTF-8 text; save it as UTF-8") from error


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_text,
    ".markdown": read_text,
    ".rst": read_text,
    ".html": markup.read_html,
    ".htm": markup.read_html,
    ".xhtml": markup.read_html,
    ".pdf": markup.read_pdf,
    ".docx": markup.read_docx,
    ".csv": rows.read_csv,
    ".tsv": rows.read_csv,
    ".json": rows.read_json,
    ".jsonl": rows.read_jsonl,
    ".ndjson": rows.read_jsonl,
    ".parquet": rows.read_parquet,
}


def documents_in(file: Path) -> Iterator[str]:
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        known = ", ".join(sorted({suffix.removeprefix(".") for suffix in READERS}))
        raise Unreadable(f"not a kind that is read here ({known})")
    yield from reader(file)
