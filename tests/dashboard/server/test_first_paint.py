"""The first words come with the page itself, and only to those who may read them."""

import httpx
import pytest
from playwright.sync_api import expect

from dashboard.app import PAGES
from dashboard.pages import overview
from dashboard.server.first_paint import said_at_first
from dashboard.server.serve import Door, opened
from dashboard.ui import polling as follow
from tests.dashboard.looking import site
from tests.dashboard.test_hostile import inert


def page_of(url: str) -> str:
    return httpx.get(url, trust_env=False).raise_for_status().text


def first_of(page: str) -> str:
    """The words alone, without the style before them and the script behind."""
    assert page.count('<div id="first">') == 1
    return page.split('<div id="first">')[1].split("</style>")[1].split("</div><script>")[0]


def test_the_first_words_are_those_of_the_page(url):
    assert "Cycle 3 rejected" in first_of(page_of(url))
    assert "Cycle 1 promoted" in first_of(page_of(f"{url}/cycle?number=1"))
    for _, path, _ in PAGES:
        assert 'aria-current="page"' in first_of(page_of(f"{url}/{path}"))


def test_what_can_be_filled_in_does_not_come_first(url):
    first = first_of(page_of(f"{url}/cycles"))
    assert "<h1>Cycles</h1></section>" in first
    assert "<form" not in first
    assert first.count("<section") == first.count("</section>")


def test_nobody_reads_them_without_the_password(reader):
    with opened(reader, Door(auth="ada:secret")) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert "Cycle 3" not in client.get("/").text
        client.post("/login", data={"username": "ada", "password": "secret"}).raise_for_status()
        assert '<div id="first">' not in client.get("/").text


def test_a_compressed_answer_has_them_too(url):
    asked = {"Accept-Encoding": "br, gzip"}
    assert "Cycle 3 rejected" in httpx.get(url, headers=asked, trust_env=False).text


@pytest.mark.parametrize("search", ["", "?number=2", "?documents=%3Cb%3E%22%C3%A4"])
def test_the_pages_own_question_finds_the_answer_made(reader, search):
    looks, shared = [], site(reader)

    def fill(asked):
        looks.append(asked.query)
        return overview.fill(asked)

    as_javascript_says_it = '{"dark":false,"narrow":false,"search":"' + search + '"}'
    for told in (said_at_first(search.removeprefix("?")), as_javascript_says_it):
        follow.refreshed(shared, "", 6, fill, follow.changes, None, told)
    assert len(looks) == 1


def test_hostile_words_in_an_address_stay_words(url):
    words = first_of(page_of(f"{url}/cycles?documents=<script>hacked()</script>&sort='><img src=x>"))
    inert(words)


@pytest.mark.browser
def test_they_go_when_the_page_itself_has_come(url, visit):
    page = visit(url).page
    expect(page.locator("gradio-app h1")).to_contain_text("Cycle 3 rejected")
    expect(page.locator("#first")).to_have_count(0)
    expect(page.locator("h1")).to_have_count(1)
