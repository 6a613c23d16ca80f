"""The files under a path, and a reader for each file format: it takes a path and yields documents.

Files come in a fixed order, with the reason where one cannot be read: nothing outside of the path is opened.

HTML is read as Markdown, Word by paragraphs and tables, PDF by its text; pictures are skipped. Every row of a table is
a document: the row's text field, or else all its fields with their names. Long texts become several documents, so that
one large file takes no more memory than small ones."""

import csv
import importlib
import json
import logging
import os
import re
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

Reader = Callable[[Path], Iterator[str]]

MAX_CHARACTERS = 1 << 18  # of a document; a longer one becomes several, split between paragraphs if it has any
# Bytes that are read at once: a parsed page takes many times the memory of its text.
MAX_PAGE_BYTES, MAX_UNPACKED_BYTES = 16 << 20, 64 << 20
TEXT_FIELDS = ("text", "content", "document", "passage", "body", "article", "markdown")
METADATA_FIELDS = ("id", "url", "title", "name", "source", "date", "timestamp", "language", "meta", "metadata")
ROW_NUMBERS = ("", "unnamed: 0", "__index_level_0__")  # the names that pandas gives their column
BLOCKS = ("title", "header", "nav", "main", "aside", "footer", "summary", "address", "form")  # inline to markdownify
POWER = re.compile(r"\s*[-−+]?\d+\s*")
LISTS = ("data", "rows", "records", "items", "results", "documents", "articles")  # of an object that is a data set
TABLES = (".csv", ".tsv")  # ends of names of files whose fields are texts
BLANK = " ,;\t\r\n"  # of a table's line without text
ROWS = (".json", ".jsonl", ".ndjson", ".parquet", *TABLES)  # of files of rows
MAX_JSON_BYTES = 64 << 20  # of a .json file, which must be read as a whole
BATCH_ROWS = 64
MAX_LINE_BYTES = 16 << 20
UTF16_BYTE_ORDER_MARKS = {b"\xff\xfe", b"\xfe\xff"}
OTHER_FORMAT = "not a supported format"
NOT_UTF8 = "not UTF-8 text; save it as UTF-8"

for library in ("bs4", "pypdf"):  # they warn about every irregularity that they can handle
    logging.getLogger(library).setLevel(logging.CRITICAL)


class Unreadable(Exception):
    """A file, or the rest of it, cannot be read: it is skipped, and the message is the reason that is reported."""


def split_document(pieces: Iterable[str], max_characters: int = MAX_CHARACTERS) -> Iterator[str]:
    """Join the pieces of one document; yield it whole, or in parts of at most `max_characters`. Where a piece cannot be
    read, those before it are a document all the same."""
    pending = ""
    try:
        for text in pieces:
            if "\0" in text:
                raise Unreadable("not text: it contains NUL bytes")
            pending += text
            while len(pending) > max_characters:
                cut = _cut_position(pending, max_characters)
                if pending[:cut].strip():
                    yield pending[:cut].strip()
                pending = pending[cut:]
    except Exception:
        if pending.strip():
            yield pending.strip()
        raise
    if pending.strip():
        yield pending.strip()


def _cut_position(text: str, max_characters: int) -> int:
    for separator in ("\n\n", "\n", " "):
        position = text.rfind(separator, max_characters // 2, max_characters)
        if position > 0:
            return position + len(separator)
    return max_characters


def import_optional(name: str) -> Any:
    """Import a module of the extra "documents". Raise Unreadable if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unreadable("needs a library that is not installed: install recover's extra `documents`") from error


def read_text(file: Path) -> Iterator[str]:
    """Plain text, Markdown and reStructuredText, unchanged."""
    with file.open("rb") as raw:
        encoding = "utf-16" if raw.read(2) in UTF16_BYTE_ORDER_MARKS else "utf-8-sig"
    with file.open(encoding=encoding) as text:
        try:
            yield from split_document(iter(lambda: text.read(MAX_CHARACTERS), ""))
        except UnicodeError as error:
            raise Unreadable(NOT_UTF8) from error


def read_html(file: Path) -> Iterator[str]:
    """All the text of a page, including boilerplate; the addresses of links are dropped."""
    if file.stat().st_size > MAX_PAGE_BYTES:
        raise Unreadable(f"over {MAX_PAGE_BYTES >> 20} MB, too large for one page")
    soup, markdown = import_optional("bs4"), import_optional("markdownify")
    with warnings.catch_warnings(action="ignore"):  # such as XML that is declared as HTML
        decoded = soup.UnicodeDammit(file.read_bytes(), is_html=True).unicode_markup or ""
        page = soup.BeautifulSoup(decoded, "lxml")  # which knows where an element ends without an end tag
        for invisible in page(["script", "style", "template", "noscript"]):
            invisible.decompose()
        for raised in page("sup"):  # 10 to the 24th is not 1024; a link is a footnote's
            if POWER.fullmatch(raised.get_text()) and raised.find("a") is None:
                raised.insert(0, "^")
        for block in page(list(BLOCKS)):
            block.name = "p"
        text = markdown.MarkdownConverter(
            heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False
        ).convert_soup(page)
    yield from split_document(["\n".join(line.rstrip() for line in text.splitlines())])


def read_docx(file: Path) -> Iterator[str]:
    if sum(part.file_size for part in zipfile.ZipFile(file).infolist()) > MAX_UNPACKED_BYTES:
        raise Unreadable(f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MB")
    docx = import_optional("docx")
    document = docx.Document(str(file))
    _unwrap(document.element.body)
    yield from split_document(f"{_block_text(block)}\n\n" for block in document.iter_inner_content())


def _unwrap(body: Any) -> None:
    """Take the text out of content controls, tracked changes and smart tags, which python-docx does not look into."""
    for moved in body.xpath(".//w:moveFrom"):
        moved.getparent().remove(moved)
    for wrapper in body.xpath(".//w:sdt | .//w:ins | .//w:moveTo | .//w:smartTag | .//w:customXml"):
        content = next((child for child in wrapper if str(child.tag).endswith("}sdtContent")), wrapper)
        for child in list(content):
            wrapper.addprevious(child)
        wrapper.getparent().remove(wrapper)


def _block_text(block: Any) -> str:
    """A paragraph, as a Markdown heading if it is one; or a table, row by row."""
    if hasattr(block, "rows"):
        seen = set[Any]()  # a merged cell is in each of its rows and columns
        return "\n".join(" | ".join(_cell_text(cell, seen) for cell in row.cells) for row in block.rows)
    level = block.style.name.removeprefix("Heading ") if block.style is not None and block.style.name else ""
    return f"{'#' * int(level)} {block.text}" if level.isdecimal() and len(level) == 1 else str(block.text)


def _cell_text(cell: Any, seen: set[Any]) -> str:
    if cell._tc in seen:
        return ""
    seen.add(cell._tc)
    return "\n".join(_block_text(block) for block in cell.iter_inner_content())


def read_pdf(file: Path) -> Iterator[str]:
    pypdf = import_optional("pypdf")
    with file.open("rb") as raw:
        reader = pypdf.PdfReader(raw)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("locked with a password")
        parts = split_document(_page_texts(reader.pages))
        if (first := next(parts, None)) is None:
            raise Unreadable("no text; perhaps its pages are pictures")
        yield first
        yield from parts


def _page_texts(pages: Iterable[Any]) -> Iterator[str]:
    """Skip pages that cannot be read, and report them by raising Unreadable at the end."""
    broken: list[int] = []
    number = 0
    for number, page in enumerate(pages, start=1):
        try:
            yield f"{page.extract_text()}\n\n".replace("\0", "")
        except Exception:  # pypdf raises what it meets
            broken.append(number)
    if broken:
        raise Unreadable(f"{len(broken)} of {number} pages cannot be read; the first is page {broken[0]}")


def row_text(row: Any) -> str:
    """The text of a row, or all of its fields where none is a text; empty where the text is."""
    if row is None:
        return ""
    if isinstance(row, dict):
        row = {
            name: value
            for name, value in row.items()
            if str(name).lower() not in ROW_NUMBERS or not str(value).strip().isdecimal()
        }
        fields = {str(name).lower(): value for name, value in row.items()}
        texts = [fields[name] for name in TEXT_FIELDS if name in fields]
        body = next((text for text in texts if isinstance(text, str) and text.strip()), None)
        if texts and not any(has_content(fields[name]) for name in fields.keys() - set(METADATA_FIELDS)):
            return ""
        if body is None:
            return "\n".join(f"{name}: {_as_text(value)}" for name, value in row.items() if has_content(value))
        title = fields.get("title")
        return f"{title}\n\n{body}" if isinstance(title, str) and title.strip() and title not in body else body
    return _as_text(row)


def row_documents(rows: Iterable[Any]) -> Iterator[str]:
    for row in rows:
        yield from split_document([row_text(row).replace("\0", "")])


def read_rows(file: Path) -> Iterator[str]:
    return row_documents(rows_of(file))


def csv_rows(file: Path) -> Iterator[Any]:
    csv.field_size_limit(MAX_LINE_BYTES)
    with file.open(encoding="utf-8-sig", newline="") as text:
        try:
            all_lines = iter(lambda: text.readline(MAX_LINE_BYTES), "")
            header = next((line for line in all_lines if line.strip(BLANK)), "")  # spreadsheets may begin further down
            delimiter = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
            lines = _Lines(chain([header], all_lines))
            rows = csv.DictReader(lines, delimiter=delimiter, strict=True)
            if rows.fieldnames:  # a header that cannot be read is an error
                yield from _whole_rows(rows, lines)
        except UnicodeError as error:
            raise Unreadable(NOT_UTF8) from error
        except csv.Error as error:
            raise Unreadable(f"not a table of comma-separated values: {error}") from error


class _Lines:
    """An iterator that can go back to behind the first line of the last row."""

    def __init__(self, lines: Iterator[str]):
        self.lines, self.again, self.of_row = lines, deque[str](), list[str]()

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self.again.popleft() if self.again else next(self.lines)
        if self.of_row or line.strip():  # blank ones before a row are none of it
            self.of_row.append(line)
        return line

    def go_back(self) -> None:
        self.again.extendleft(reversed(self.of_row[1:]))


def _whole_rows(rows: Iterator[dict[Any, Any]], lines: _Lines) -> Iterator[dict[str, Any]]:
    """Skip rows with more cells than the header, whose text was cut at a comma, and lines with a quote that is never
    closed, or is followed by text, and report them as Unreadable."""
    count = longer = quoted = 0
    while True:
        lines.of_row.clear()
        try:
            row = next(rows, None)
        except csv.Error as error:
            if not re.search("expected after|end of data", str(error)):
                raise
            count, quoted = count + 1, quoted + 1
            lines.go_back()  # an open quote costs its own line, not those up to the next quote
            continue
        if row is None:
            break
        behind = row.pop(None, [])  # csv's name for such cells; one may be empty, behind a last comma
        count, longer = count + 1, longer + any(behind)
        if not any(behind):
            yield row
    if longer:
        raise Unreadable(f"{longer} of {count} rows have more cells than the header; put text with commas in quotes")
    if quoted:
        raise Unreadable(f"{quoted} of {count} rows have quotes that do not enclose a cell; double those inside one")


def rows_of(file: Path) -> Iterator[Any]:
    """The rows that can be read; at the end Unreadable if there are others."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        yield from parquet_rows(file)
    elif suffix in TABLES:
        yield from csv_rows(file)
    elif suffix == ".json":
        try:
            yield from json_rows(file)
        except Unreadable:
            if not _has_object_lines(file):
                raise
            yield from json_line_rows(file)
    else:
        yield from json_line_rows(file)


def _has_object_lines(file: Path) -> bool:
    """Whether one of its first two lines is an object by itself: JSON lines under another name."""
    with file.open("rb") as raw:
        first = list(islice(filter(bytes.strip, iter(lambda: raw.readline(MAX_LINE_BYTES), b"")), 2))
    for line in first:
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(line), dict):
                return not first[0].lstrip().startswith(b"[")
    return False


def json_rows(file: Path) -> Iterator[Any]:
    """An object, or a list of them, also as the `data` of an object that says nothing else."""
    if file.stat().st_size > MAX_JSON_BYTES:
        raise Unreadable(f"over {MAX_JSON_BYTES >> 20} MB, too large; save it as .jsonl, with one object in each line")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON: {error}") from error
    yield from content if isinstance(content, list) else _rows_inside(content)


def _rows_inside(content: Any) -> list[Any]:
    """The objects of a list such as "data", if there are only numbers and a version beside it; or itself."""
    fields = dict(content) if isinstance(content, dict) else {}
    rows = next((fields.pop(name) for name in LISTS if isinstance(fields.get(name), list)), None)
    fields.pop("version", None)
    says_more = any(value is not None and not isinstance(value, int | float) for value in fields.values())
    return rows if rows and not says_more and all(isinstance(row, dict) for row in rows) else [content]


def json_line_rows(file: Path) -> Iterator[Any]:
    """Skip lines that cannot be read, and report them by raising Unreadable at the end."""
    not_json, too_long, number = "not JSON", f"over {MAX_LINE_BYTES >> 20} MB", 0
    unread: dict[str, list[int]] = {not_json: [], too_long: []}
    with file.open("rb") as raw:
        if raw.read(2) in UTF16_BYTE_ORDER_MARKS:
            raise Unreadable(NOT_UTF8)
        raw.seek(0)
        for number, line in enumerate(_lines(raw), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError):
                unread[too_long if len(line) == MAX_LINE_BYTES else not_json].append(number)
            else:
                yield row
    reasons = [f"{len(n)} of {number} lines are {what}; the first is line {n[0]}" for what, n in unread.items() if n]
    if reasons:
        raise Unreadable("; ".join(reasons))


def _lines(raw: BinaryIO) -> Iterator[bytes]:
    """Each line; of one that is too long only the beginning."""
    while line := raw.readline(MAX_LINE_BYTES):
        yield line
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = raw.readline(MAX_LINE_BYTES)


def parquet_rows(file: Path) -> Iterator[Any]:
    parquet = import_optional("pyarrow.parquet")
    broken = import_optional("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=BATCH_ROWS):
                yield from batch.to_pylist()
    except (broken, OSError) as error:
        raise Unreadable(f"not Parquet, or a part of it is missing: {str(error).rstrip('.')}") from error


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


READERS: dict[str, Reader] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), read_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".pdf": read_pdf,
    ".docx": read_docx,
    **dict.fromkeys(ROWS, read_rows),
}


def has_content(value: Any) -> bool:
    value = value.strip() if isinstance(value, str) else value
    return value is not None and value not in ("", [], {}) and not isinstance(value, bytes)


def documents_in(file: Path) -> Iterator[str]:
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise Unreadable(OTHER_FORMAT)
    yield from reader(file)


def files_under(path: Path) -> Iterable[tuple[Path, str]]:
    """Each file, and the reason why it cannot be read, or ""."""
    root = path.resolve()
    return _walk(root, root) if root.is_dir() else [(root, "" if root.is_file() else "not a regular file")]


def _walk(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, reason why it cannot be read, or ""), sorted by name, folder by folder.

    Hidden files and folders (.git, .venv, .recover) are skipped: they are not documents."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield folder, f"cannot be listed: {error.strerror or error}"
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path, root)
        else:
            yield path, _unreadable_reason(path, root)


def _unreadable_reason(path: Path, root: Path) -> str:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "a broken link"
    if not target.is_relative_to(root):
        return "a link to a file outside the folder"
    if target.is_dir():
        return "a link to a folder; folders are read only where they are"
    return "" if target.is_file() else "not a regular file"
