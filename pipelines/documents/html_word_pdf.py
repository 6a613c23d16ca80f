"""Read HTML as Markdown, Word by paragraphs and tables, and PDF by its text. Pictures are skipped."""

import logging
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.documents.optional_libraries import import_optional
from pipelines.documents.splitting import Unreadable, split_document

# Bytes that are read at once: a parsed page takes many times the memory of its text.
MAX_PAGE_BYTES, MAX_UNPACKED_BYTES = 16 << 20, 64 << 20

for library in ("bs4", "pypdf"):  # they warn about every irregularity that they can handle
    logging.getLogger(library).setLevel(logging.CRITICAL)


def read_html(file: Path) -> Iterator[str]:
    """All the text of a page, including boilerplate; the addresses of links are dropped."""
    if file.stat().st_size > MAX_PAGE_BYTES:
        raise Unreadable(f"over {MAX_PAGE_BYTES >> 20} MB, too large for one page")
    soup, markdown = import_optional("bs4"), import_optional("markdownify")
    with warnings.catch_warnings(action="ignore"):  # such as XML that is declared as HTML
        page = soup.BeautifulSoup(file.read_bytes(), "html.parser")
        for invisible in page(["script", "style", "template", "noscript"]):
            invisible.decompose()
        text = markdown.MarkdownConverter(
            heading_style="ATX",
            strip=["a", "img"],
            escape_asterisks=False,
            escape_underscores=False,
        ).convert_soup(page)
    yield from split_document(["\n".join(line.rstrip() for line in text.splitlines())])


def read_docx(file: Path) -> Iterator[str]:
    if sum(part.file_size for part in zipfile.ZipFile(file).infolist()) > MAX_UNPACKED_BYTES:
        raise Unreadable(f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MB")
    docx = import_optional("docx")
    blocks = docx.Document(str(file)).iter_inner_content()
    yield from split_document(f"{_block_text(block)}\n\n" for block in blocks)


def _block_text(block: Any) -> str:
    """A paragraph, as a Markdown heading if it is one; or a table, row by row."""
    if hasattr(block, "rows"):
        return "\n".join(" | ".join(cell.text for cell in row.cells) for row in block.rows)
    level = block.style.name.removeprefix("Heading ") if block.style is not None and block.style.name else ""
    return f"{'#' * int(level)} {block.text}" if level.isdecimal() and len(level) == 1 else str(block.text)


def read_pdf(file: Path) -> Iterator[str]:
    pypdf = import_optional("pypdf")
    with file.open("rb") as raw:
        reader = pypdf.PdfReader(raw)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("locked with a password")
        has_text = False
        for part in split_document(f"{page.extract_text()}\n\n".replace("\0", "") for page in reader.pages):
            has_text = True
            yield part
    if not has_text:
        raise Unreadable("no text; perhaps its pages are pictures")
