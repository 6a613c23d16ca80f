import httpx
import pytest

from dashboard.app import PAGES
from dashboard.pages import overview
from dashboard.server.middleware import initial_browser_state
from dashboard.server.serve import ServerOptions, open_dashboard
from dashboard.ui import polling
from tests.dashboard.page_requests import dashboard
from tests.dashboard.test_hostile import assert_inert


def get_page(url: str) -> str:
    return httpx.get(url, trust_env=False).raise_for_status().text


def first_paint(page: str) -> str:
    """The content alone, without style and script."""
    assert page.count('<div id="first">') == 1
    return page.split('<div id="first">')[1].split("</style>")[1].split("</div><script>")[0]


def test_the_first_paint_is_the_top_of_the_page(url):
    assert "Cycle 3 not promoted" in first_paint(get_page(url))
    assert "Cycle 1 promoted" in first_paint(get_page(f"{url}/cycle?number=1"))
    for _, path, _ in PAGES:
        assert 'aria-current="page"' in first_paint(get_page(f"{url}/{path}"))


def test_the_first_paint_has_no_form(url):
    first = first_paint(get_page(f"{url}/cycles"))
    assert "<h1>Cycles</h1></section>" in first
    assert "<form" not in first
    assert first.count("<section") == first.count("</section>")


def test_there_is_no_first_paint_with_a_password(reader):
    with (
        open_dashboard(reader, ServerOptions(auth="ada:secret")) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        assert "Cycle 3" not in client.get("/").text
        client.post("/login", data={"username": "ada", "password": "secret"}).raise_for_status()
        assert '<div id="first">' not in client.get("/").text


@pytest.mark.parametrize("search", ["", "?number=2", "?documents=%3Cb%3E%22%C3%A4"])
def test_the_first_request_of_the_page_hits_the_cache(reader, search):
    queries, shared = [], dashboard(reader)

    def render(request):
        queries.append(request.query)
        return overview.render(request)

    from_javascript = '{"dark":false,"narrow":false,"search":"' + search + '"}'
    for state in (initial_browser_state(search.removeprefix("?")), from_javascript):
        polling.refresh(shared, "", 5, render, polling.project_version, None, state)
    assert len(queries) == 1
    polling.refresh(shared, "", 5, render, polling.project_version, None, initial_browser_state("another=address"))
    assert len(queries) == 2


def test_hostile_text_in_an_address_stays_text(url):
    html = first_paint(get_page(f"{url}/cycles?documents=<script>hacked()</script>&sort='><img src=x>"))
    assert_inert(html)
