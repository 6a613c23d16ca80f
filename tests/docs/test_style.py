"""The pages keep one style: short lines and table cells, an introduction, links and paths that exist."""

import re
from pathlib import Path

import pytest

from tests.docs.sandbox import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]

MAX_LINE, MAX_CELL, MAX_TERMS = 120, 200, 30
CELL_BORDER = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
CODE_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PYTHON_PATH = re.compile(r"`((?:benchmarks|dashboard|db|evals|pipelines|recovery|studies|tests)/[\w./]*)`")
MODULE = re.compile(r"python -m\s((?:benchmarks|db|evals|pipelines|recovery|studies|tests)[\w.]*)")
REMOVED = {  # modules that pages name with the commit that has them
    "benchmarks/real.py": "f999add",
    "benchmarks/adapter_memory.py": "720d52b",
}


def page_id(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_lines_and_table_cells_are_short(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            assert len(line) <= MAX_LINE, f"{page.name}:{number} has {len(line)} columns"
            continue
        longest = max(len(cell.strip()) for cell in CELL_BORDER.split(line))
        assert longest <= MAX_CELL, f"{page.name}:{number} has a cell of {longest} characters"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_starts_with_what_it_is_for(page: Path) -> None:
    title, introduction, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert re.match(r"[A-Z`*]", introduction), f"{page.name} must start with a paragraph"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = [name.rstrip(".").replace(".", "/") for name in MODULE.findall(text)]
    paths = [*PYTHON_PATH.findall(text), *(name if (ROOT / name).is_dir() else f"{name}.py" for name in modules)]
    missing = [path for path in paths if not (ROOT / path).exists()]
    commits = [next((commit for name, commit in REMOVED.items() if path.startswith(name)), path) for path in missing]
    assert all(f"at {commit}" in " ".join(text.split()) for commit in commits), missing


@pytest.mark.parametrize("page", [*PAGES, *sorted(set(ROOT.glob("*.md")) - set(PAGES))], ids=page_id)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{target.name}#{anchor}"


def test_the_glossary_is_short_and_sorted() -> None:
    terms = HEADING.findall((DOCS / "glossary.md").read_text(encoding="utf-8"))[1:]
    assert len(terms) <= MAX_TERMS
    assert terms == sorted(terms, key=str.casefold)


def anchors(page: Path) -> set[str]:
    """The anchors that Markdown viewers give the headings of a page."""
    headings = HEADING.findall(CODE_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {anchor_of(heading) for heading in headings}


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
