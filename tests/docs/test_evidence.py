"""Every table of figures stands beside the command or the file that it comes from, and every file or folder that an
example names exists, is made on the same page, or is one of the reader's own."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_style import CODE_FENCE, DOCS, PAGES, anchor_of, page_id

HEADING = re.compile(r"^(#{1,6}) (.+)$")
INDENTED = re.compile(r"^ {4}\S.*$", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
SETTING = re.compile(r"^\|\s*`")  # a table of names looks up, it measures nothing
FIGURE = re.compile(r"(?<![\w.])[+−-]?(?:\d+\.\d{2,}|\d+(?:[.,]\d+)? ?(?:s|min|h|ms|GB|GiB|MB|MiB|%))(?![\w.])")
LOOK_UP = ("reference.md", "api.md", "contracts.md")  # these list names and values
MIN_FIGURES = 4  # of a table that reports a measurement
COMMAND = re.compile(r"\b(?:recover [a-z]|python -m |python [\w/]+\.py|make [a-z]|pytest )")
RESULT = re.compile(r"\]\(([^)\s]*\.(?:json|json\.gz|jsonl|toml|py))\)|`((?:studies/results|benchmarks)/[\w./-]*)`")
PAGE_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*\.md)?#?([^)\s]*)\)")

ANY_PATH = re.compile(r"(?<![\w./:~…-])(\./[\w./-]+)")
OF_FLAG = re.compile(r"--[a-z-]+[ =](\w[\w.-]*/[\w./-]*)")  # a bare name is a file of the reader's
MADE = [
    re.compile(r"--(?:to|out|project|results)[ =]([\w./-]+)"),
    re.compile(r"(?:write|mkdir|Path|write_text|open)\(?\(?[\"']([\w./-]+)[\"']"),
    re.compile(r"(?:mkdir(?: -p)?|>|tee|cp -r \S+) ([\w./-]+)"),
    re.compile(r"record=[\"']([\w./-]+)[\"']"),  # of the callback
    re.compile(r"-v ([\w./-]+):/project"),  # docker makes it
]
SAVED = re.compile(r"[Ss]ave it as `([\w./-]+)`")
NO_PATH = re.compile(r"^(?:[A-Z_]+(?:\.\w+)?|base|current|[\w.-]+/[\w.-]*[A-Z][\w.-]*|cycle|run|\d+)$")
OWN = re.compile(r"stand for your own:(.*?)makes `world`\.\n", re.DOTALL)


class Section(NamedTuple):
    level: int
    title: str
    text: str


def sections(page: Path) -> list[Section]:
    """A heading with what stands below it, up to the next heading of any level."""
    found, fenced = [Section(1, "", "")], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else HEADING.match(line)
        if heading:
            found.append(Section(len(heading[1]), heading[2], ""))
        else:
            found[-1] = found[-1]._replace(text=f"{found[-1].text}{line}\n")
    return found


def in_context(all_sections: list[Section], index: int) -> str:
    """The text of a section, and the beginnings of those that it belongs to, without that of the page."""
    level, text = all_sections[index].level, all_sections[index].text
    for section in reversed(all_sections[:index]):
        if 1 < section.level < level:
            level, text = section.level, section.text + text
    return text


def tables(text: str) -> Iterator[list[str]]:
    rows: list[str] = []
    for line in [*CODE_FENCE.sub("", text).splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            yield rows
            rows = []


def reports_a_measurement(rows: list[str]) -> bool:
    body = [row for row in rows[2:] if not SETTING.match(row)]
    return sum(bool(FIGURE.search(cell)) for row in body for cell in row.split("|")) >= MIN_FIGURES


def code_of(text: str) -> str:
    rest = CODE_FENCE.sub("", text)
    return "\n".join([*CODE_FENCE.findall(text), *INDENTED.findall(rest), *INLINE.findall(rest)])


def has_evidence(page: Path, text: str, *, follows_links: bool = True) -> bool:
    if COMMAND.search(code_of(text)) or RESULT.search(text):
        return True
    return follows_links and any(leads_to_evidence(page, *link) for link in PAGE_LINK.findall(text))


def leads_to_evidence(page: Path, name: str, anchor: str) -> bool:
    target = page.parent / name if name else page
    if not target.is_file():
        return False
    whole = sections(target)
    named = [n for n, section in enumerate(whole) if anchor and anchor in anchor_of(section.title)]
    return any(has_evidence(target, in_context(whole, n), follows_links=False) for n in named)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in LOOK_UP], ids=page_id)
def test_a_table_of_figures_says_what_it_comes_from(page: Path) -> None:
    whole = sections(page)
    unproven = [
        f"{section.title}: {rows[0]}"
        for index, section in enumerate(whole)
        for rows in tables(section.text)
        if reports_a_measurement(rows) and not has_evidence(page, in_context(whole, index))
    ]
    assert not unproven, "name the command in the section, or link to the file of the results"


def readers_own() -> set[str]:
    """The names that stand for files of the reader's, as CONTRIBUTING.md lists them."""
    match = OWN.search((DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert match
    return {first_part(name) for name in INLINE.findall(match[1])} | {"world"}


def first_part(path: str) -> str:
    return re.sub(r"-\d+$", "", path.removeprefix("./").rstrip("./").partition("/")[0])


def unmade(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    code = code_of(text)
    made = {first_part(name) for pattern in MADE for name in pattern.findall(code)} | set(SAVED.findall(text))
    named = dict.fromkeys(name.rstrip(".") for pattern in (ANY_PATH, OF_FLAG) for name in pattern.findall(code))
    return [
        name
        for name in named
        if not NO_PATH.match(name.split("@")[0])
        and not name.startswith("/")
        and not (DOCS.parent / name).exists()
        and not any(first_part(name) in (folder, f"{folder}-data", f"{folder}-data.jsonl") for folder in made)
        and first_part(name) not in readers_own()
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in LOOK_UP], ids=page_id)
def test_files_and_folders_of_examples_are_made_or_are_the_readers_own(page: Path) -> None:
    assert not unmade(page), "make it in an example above, or list it in CONTRIBUTING.md as one of the reader's own"
