"""A reader for each file format: it takes a path and yields documents."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.documents import markup, tabular
from pipelines.documents.splitting import MAX_CHARACTERS, Unreadable, split_document

Reader = Callable[[Path], Iterator[str]]

UTF16_BYTE_ORDER_MARKS = {b"\xff\xfe", b"\xfe\xff"}


def read_text(file: Path) -> Iterator[str]:
    """Plain text, Markdown and reStructuredText, unchanged."""
    with file.open("rb") as raw:
        encoding = "utf-16" if raw.read(2) in UTF16_BYTE_ORDER_MARKS else "utf-8-sig"
    with file.open(encoding=encoding) as text:
        try:
            yield from split_document(iter(lambda: text.read(MAX_CHARACTERS), ""))
        except UnicodeError as error:
            raise Unreadable("not UTF-8 text; save it as UTF-8") from error


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
    ".csv": tabular.read_csv,
    ".tsv": tabular.read_csv,
    ".json": tabular.read_json,
    ".jsonl": tabular.read_jsonl,
    ".ndjson": tabular.read_jsonl,
    ".parquet": tabular.read_parquet,
}


def documents_in(file: Path) -> Iterator[str]:
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        formats = ", ".join(sorted({suffix.removeprefix(".") for suffix in READERS}))
        raise Unreadable(f"not a supported format ({formats})")
    yield from reader(file)
