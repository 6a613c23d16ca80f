"""A reader for each file format: it takes a path and yields documents."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.documents import html_word_pdf, tabular
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
    ".html": html_word_pdf.read_html,
    ".htm": html_word_pdf.read_html,
    ".xhtml": html_word_pdf.read_html,
    ".pdf": html_word_pdf.read_pdf,
    ".docx": html_word_pdf.read_docx,
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
