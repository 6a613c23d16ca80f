"""On no page does text of others run as code, pose as other text, or fetch anything."""

import re
from contextlib import suppress
from html.parser import HTMLParser
from itertools import product
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from dashboard.app import PAGES, PLAYGROUND
from dashboard.html_report import report
from dashboard.pages import compare, cycle, lineage, live_run, overview, playground, rollout_tokens, studies
from dashboard.pages import cycle_list as cycles
from dashboard.ui.html import markdown
from dashboard.ui.polling import NotFound
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.browser import Visit
from tests.dashboard.hostile import BAD, HARM, LONG, NOTE, hostile
from tests.dashboard.page_requests import page_html, parts

FORBIDDEN = {"script", "img", "iframe", "textarea", "object", "embed", "style", "base", "link", "meta", "image", "use"}


class Elements(HTMLParser):
    """The elements and attributes that a browser would create."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def assert_inert(markup: str) -> None:
    elements = Elements(markup)
    assert not FORBIDDEN & elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name in ("srcdoc", "formaction")]
    targets = [value for name, value in elements.attributes if name in ("href", "src", "action")]
    assert not [target for target in targets if re.match(r"\s*(javascript|data|vbscript):", target, re.IGNORECASE)]
    assert not set("${\u202e\u2066\x00\x07\x1b") & set(markup)
    assert len(markup) < 400_000, "a text of a megabyte is cut"


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    engine = open_database(tmp_path_factory.mktemp("hostile") / "record.db")
    with Tracker(engine) as tracker:
        hostile(tracker)
        yield Reader(engine)  # while its last run has a heartbeat
    engine.dispose()


QUERY_NAMES = {  # what each page reads from its address
    overview: (),
    cycles: ("status", "documents", "sort"),
    cycle: ("number", "smoothing", "scale"),
    compare: ("a", "b", "c", "d", "task", "show", "kind", "text", "page"),
    lineage: ("checkpoint",),
    rollout_tokens: ("run", "step"),
    live_run: ("run",),
    studies: ("study",),
    playground: ("of", "prompt"),
}
OTHER_NAMES = ("css", "path", "words", "self", "href", BAD)


@pytest.mark.parametrize("page", QUERY_NAMES)
def test_no_query_puts_what_could_run_on_a_page(bad, page):
    two_sides = {"a": 1, "b": 3}  # with more answers than one page of `compare` has, so it links to the next
    bad_ones = {"a": 1, "b": 5, "checkpoint": 5}
    queries = ({}, two_sides, bad_ones)
    read = [query for query in queries if not query or query.keys() & set(QUERY_NAMES[page])]
    for query, name in (*product(queries, QUERY_NAMES[page]), *product(read, OTHER_NAMES)):
        with suppress(NotFound):
            first, *rest = parts(page, bad, "?" + urlencode({**query, name: BAD}))
            assert_inert("".join(part for part in (first, *rest) if isinstance(part, str)))


def test_every_page_is_asked_with_hostile_queries():
    assert {page for _, _, page in [*PAGES, PLAYGROUND]} == {module.page for module in QUERY_NAMES}


def test_a_query_cannot_change_a_link(bad):
    query = {"a": 1, "b": 3, "css": '"><img src=x onerror=other(7)>', "path": "x", "words": "x"}
    html = page_html(compare, bad, f"?{urlencode(query)}")
    assert "page 1 of 3" in html
    assert "other(7)" not in html
    assert 'href="compare?a=1&amp;b=3&amp;page=2"' in html


def test_a_note_is_markdown_and_no_more(bad):
    assert_inert(markdown(NOTE + LONG))
    assert markdown("**so** [it](https://example.org) is") == (
        '<p><strong>so</strong> <a href="https://example.org">it</a> is</p>\n'
    )


def test_a_report_is_inert_too(bad):
    document = report(bad, bad.projects()[-1], 2)
    assert "default-src 'none'" in document
    html = document[document.index("<body>") :]
    own_html = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)  # the chart library, with our numbers
    assert HARM in own_html
    assert not FORBIDDEN & Elements(own_html).tags


@pytest.mark.browser
def test_nothing_runs_in_a_browser(bad, serving, visit):
    url = serving(bad)
    session: Visit = visit(f"{url}/?__theme=light")
    for title, path, _ in PAGES:
        session.page.goto(f"{url}/{path}?checkpoint=5&a=1&b=5")
        expect(session.page.get_by_role("navigation", name="Pages")).to_be_visible()
        expect(session.page.get_by_role("link", name=title, exact=True).first).to_have_attribute("aria-current", "page")
        session.page.wait_for_timeout(500)
        for link in session.page.get_by_role("link", name="click").all():
            assert not (link.get_attribute("href") or "").startswith("javascript")
        assert session.page.evaluate("window.hacked") is None, title
    assert session.hosts == {url.removeprefix("http://")}
