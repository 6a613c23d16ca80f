"""Nothing that was written by others runs, poses as something else, or fetches anything; on any page."""

import re
from contextlib import suppress
from html.parser import HTMLParser
from itertools import product
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from dashboard.app import PAGES
from dashboard.pages import compare, cycle, cycles, lineage, overview
from dashboard.pages import live_run as live
from dashboard.pages import playground as trying
from dashboard.pages import rollout_tokens as tokens
from dashboard.report import report
from dashboard.ui.layout import markdown
from dashboard.ui.polling import NotThere
from tests.browser import Visit
from tests.dashboard.hostile import BAD, HARM, LONG, NOTE, hostile
from tests.dashboard.looking import content, refreshed, words

FORBIDDEN = {"script", "img", "iframe", "textarea", "object", "embed", "style", "base", "link", "meta", "image", "use"}


class Elements(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def inert(markup: str) -> None:
    found = Elements(markup)
    assert not FORBIDDEN & found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("srcdoc", "formaction")]
    ways = [value for name, value in found.attributes if name in ("href", "src", "action")]
    assert not [way for way in ways if re.match(r"\s*(javascript|data|vbscript):", way, re.IGNORECASE)]
    assert not set("${\u202e\u2066\x00\x07\x1b") & set(markup)
    assert len(markup) < 400_000, "a text of a megabyte is cut"


@pytest.fixture
def bad(told):
    tracker, reader = told
    hostile(tracker)
    return reader


@pytest.mark.parametrize(
    ("page", "search"),
    [
        (cycles, ""),
        (cycles, f"?documents={LONG[:3000]}"),
        (cycle, ""),
        (compare, "?a=1&b=5"),
        (compare, f"?a=1&b=5&text={HARM}&kind=<script>"),
        (lineage, "?checkpoint=5"),
        (tokens, ""),
        (live, ""),
    ],
)
def test_no_page_hands_on_what_could_run(bad, page, search):
    inert(words(page, bad, search))


NAMES = {
    overview: (),
    cycles: ("status", "documents", "sort"),
    cycle: ("number", "smoothing", "scale"),
    compare: ("a", "b", "c", "d", "task", "show", "kind", "text", "page"),
    lineage: ("checkpoint",),
    tokens: ("run", "step"),
    live: ("run",),
    trying: ("of", "prompt"),
}
"""What each page reads of its address."""
NEVER_ASKED = ("css", "path", "words", "self", "href", BAD)


@pytest.mark.parametrize("page", NAMES)
def test_no_address_says_what_could_run(bad, page):
    answers = {"a": "1", "b": "3"}  # more than one page of `compare` has room for, so it leads on
    for begun, name in product(({}, answers), (*NAMES[page], *NEVER_ASKED)):
        with suppress(NotThere):
            first, *rest = content(page, bad, "?" + urlencode({**begun, name: BAD}))
            rest = [] if page is trying else rest  # a text box is filled with words, not with HTML
            inert("".join(part for part in (first, *rest) if isinstance(part, str)))


def test_an_address_cannot_set_what_a_link_looks_like(bad):
    asked = {"a": 1, "b": 3, "css": '"><img src=x onerror=other(7)>', "path": "x", "words": "x"}
    told = words(compare, bad, f"?{urlencode(asked)}")
    assert "page 1 of 3" in told
    assert "other(7)" not in told
    assert 'href="compare?a=1&amp;b=3&amp;page=2"' in told


def test_the_overview_hands_on_nothing_that_could_run(bad):
    inert("".join(part for part in refreshed(bad)[1:] if isinstance(part, str)))


def test_a_note_is_markdown_and_no_more(bad):
    inert(markdown(NOTE + LONG))
    assert markdown("**so** [it](https://example.org) is") == (
        '<p><strong>so</strong> <a href="https://example.org">it</a> is</p>\n'
    )


def test_a_report_of_it_is_inert_too(bad):
    written = report(bad, bad.projects()[-1], 2)
    assert "default-src 'none'" in written
    shown = written[written.index("<body>") :]
    own = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)  # plotly's, with our numbers in it
    assert HARM in own
    assert not FORBIDDEN & Elements(own).tags


@pytest.mark.browser
def test_it_does_nothing_in_a_browser(bad, serving, visit):
    url = serving(bad)
    seen: Visit = visit(f"{url}/?__theme=light")
    for title, path, _ in PAGES:
        seen.page.goto(f"{url}/{path}?checkpoint=5&a=1&b=5")
        expect(seen.page.get_by_role("navigation", name="Pages")).to_be_visible()
        expect(seen.page.get_by_role("link", name=title, exact=True).first).to_have_attribute("aria-current", "page")
        seen.page.wait_for_timeout(500)
        for link in seen.page.get_by_role("link", name="click").all():
            assert not (link.get_attribute("href") or "").startswith("javascript")
        assert seen.page.evaluate("window.hacked") is None, title
    assert seen.hosts == {url.removeprefix("http://")}
