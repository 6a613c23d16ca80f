"""Every route there is, asked by somebody without a password: what answers at all is listed here, and tells nothing."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Mount

from dashboard.app import PAGES
from dashboard.server import serve
from dashboard.server.serve import Door, opened
from dashboard.ui.chart_embed import PROGRAM

ANSWERS = {
    # the log-in page, at every page's address, and what it is made of
    *(f"/{path}" for _, path, _ in PAGES),
    "/favicon.ico", "/manifest.json", "/robots.txt", "/theme.css", "/gradio_api/theme.css",
    # who is asking (nobody), which start of the server this is, and that it lives
    "/gradio_api/user", "/gradio_api/token", "/gradio_api/app_id", "/gradio_api/startup-events",
    "/gradio_api/heartbeat/{session_hash}",
    # plotly, as anyone may have it
    f"/{PROGRAM}",
}  # fmt: skip
NEVER_ENDS = "/gradio_api/heartbeat/{session_hash}"


@pytest.fixture(scope="module")
def guarded(record) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """The address of a dashboard with a password, and its routes."""
    from db.engine import open_database
    from db.queries import Reader

    made: list[Any] = []
    build = serve.application
    dashboard = opened(Reader(open_database(record)), Door(auth="ada:secret"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "application", lambda *given, **how: made.append(build(*given, **how)) or made[0])
        url = dashboard.__enter__()
    yield url, set(_routes(made[0].routes))
    dashboard.__exit__(None, None, None)


def test_without_a_password_nothing_tells_of_the_record(guarded):
    url, routes = guarded
    assert len(routes) > 60
    answered = set()
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        for method, path in sorted(routes):
            if path.rstrip("/") == NEVER_ENDS:
                answered.add(NEVER_ENDS)
                continue
            asked = re.sub(r"\{[^}]*\}", "1", path)
            answer = client.request(method, asked, json={} if method == "POST" else None)
            assert answer.status_code < 500, (method, path)
            assert "handbook" not in answer.text, (method, path)
            assert "2026-q1" not in answer.text, (method, path)
            if answer.is_success:
                answered.add(path.rstrip("/") or "/")
    assert answered == ANSWERS


@pytest.mark.parametrize("way", ["file=", "file/"])
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "/proc/self/environ"]
)
def test_with_the_password_there_are_still_no_files(guarded, record, way, path):
    url, _ = guarded
    with httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/login", data={"username": "ada", "password": "secret"}).raise_for_status()
        for asked in (path, str(record), quote(str(record), safe="")):
            answer = client.get(f"/gradio_api/{way}{asked}")
            assert answer.status_code in (400, 403, 404), asked
            assert b"SQLite" not in answer.content


def test_another_sites_page_cannot_act_in_a_visitors_name(url):
    with httpx.Client(base_url=url, trust_env=False) as client:
        for origin in ("http://evil.example", "null", f"{url}0"):
            assert client.post("/gradio_api/run/predict", json={}, headers={"Origin": origin}).status_code == 403
        assert client.get("/config", headers={"Origin": url}).status_code == 200


def test_a_name_made_to_lead_to_this_machine_opens_nothing(url):
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/config", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/config", headers={"Host": "localhost:1"}).status_code == 200


def _routes(routes: Any, above: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes(getattr(route.app, "routes", ()), above + route.path)
        elif included := getattr(route, "original_router", None):
            yield from _routes(included.routes, above)
        else:
            yield from ((method, above + route.path) for method in route.methods - {"HEAD", "OPTIONS"})
