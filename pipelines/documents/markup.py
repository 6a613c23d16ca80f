"""Pages with a layout: HTML as Markdown, Word by paragraphs and tables, PDF by its text. Pictures are not read."""

import logging
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.documents.optional_libraries import library
from pipelines.documents.splitting import Unreadable, parted

# Bytes of what has to be held as a whole, a page's tree being many times its text.
LARGEST_PAGE, LARGEST_UNPACKED = 16 << 20, 64 << 20

for talkative in ("bs4", "pypdf"):  # they tell of every oddity that they cope with
    logging.getLogger(talkative).setLevel(logging.CRITICAL)


def read_html(file: Path) -> Iterator[str]:
    """All the page says, boilerplate included; where its links lead is left out."""
    if file.stat().st_size > LARGEST_PAGE:
        raise Unreadable(f"it is over {LARGEST_PAGE >> 20} MB, too large for one page")
    soup, markdown = library("bs4"), library("markdownify")
    with warnings.catch_warnings(action="ignore"):  # on XML that calls itself HTML, and the like
        page = soup.BeautifulSoup(file.read_bytes(), "html.parser")
        for unseen in page(["script", "style", "template", "noscript"]):
            unseen.decompose()
        said = markdown.MarkdownConverter(
            heading_style="ATX",
            strip=["a", "img"],
            escape_asterisks=False,
            escape_underscores=False,
        ).convert_soup(page)
    yield from parted(["\n".join(line.rstrip() for line in said.splitlines())])


def read_docx(file: Path) -> Iterator[str]:
    if sum(part.file_size for part in zipfile.ZipFile(file).infolist()) > LARGEST_UNPACKED:
        raise Unreadable(f"it unpacks to more than {LARGEST_UNPACKED >> 20} MB")
    docx = library("docx")
    yield from parted(f"{_said(part)}\n\n" for part in docx.Document(str(file)).iter_inner_content())


def _said(part: Any) -> str:
    """A paragraph, or a table row by row."""
    if not hasattr(part, "rows"):
        level = part.style.name.removeprefix("Heading ") if part.style is not None and part.style.name else ""
        return f"{'#' * int(level)} {part.text}" if level.isdecimal() and len(level) == 1 else str(part.text)
    return "\n".join(" | ".join(cell.text for cell in row.cells) for row in part.rows)


def read_pdf(file: Path) -> Iterator[str]:
    pypdf = library("pypdf")
    with file.open("rb") as raw:
        reader = pypdf.PdfReader(raw)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is locked with a password")
        written = False
        for part in parted(f"{page.extract_text()}\n\n".replace("\0", "") for page in reader.pages):
            written = True
            yield part
    if not written:
        raise Unreadable("it holds no text; perhaps its pages are pictures")
