"""Every route, requested without a password: those that respond at all are listed here and reveal nothing."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Mount

from dashboard.app import PAGES
from dashboard.server import serve
from dashboard.server.serve import ServerOptions, open_dashboard
from dashboard.ui.html import PLOTLY

ANSWERS = {
    # the log-in page, at every page's address, and its resources
    *(f"/{path}" for _, path, _ in PAGES),
    "/favicon.ico", "/manifest.json", "/robots.txt", "/theme.css", "/gradio_api/theme.css",
    # the user (nobody), an id of this server process, and that it is running
    "/gradio_api/user", "/gradio_api/token", "/gradio_api/app_id", "/gradio_api/startup-events",
    "/gradio_api/heartbeat/{session_hash}",
    # the public chart library
    f"/{PLOTLY}",
}  # fmt: skip
NEVER_ENDS = "/gradio_api/heartbeat/{session_hash}"


@pytest.fixture(scope="module")
def guarded(record) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """The address of a dashboard with a password, and its routes."""
    from db.engine import open_database
    from db.queries import Reader

    apps: list[Any] = []
    create_app = serve.create_app
    server = open_dashboard(Reader(open_database(record)), ServerOptions(auth="ada:secret"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "create_app", lambda *args, **kwargs: apps.append(create_app(*args, **kwargs)) or apps[0])
        url = server.__enter__()
    yield url, set(_routes(apps[0].routes))
    server.__exit__(None, None, None)


def test_without_a_password_no_route_reveals_the_record(guarded):
    url, routes = guarded
    assert len(routes) > 60
    answered = set()
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        for method, path in sorted(routes):
            if path.rstrip("/") == NEVER_ENDS:
                answered.add(NEVER_ENDS)
                continue
            url_path = re.sub(r"\{[^}]*\}", "1", path)
            answer = client.request(method, url_path, json={} if method == "POST" else None)
            assert answer.status_code < 500, (method, path)
            assert "handbook" not in answer.text, (method, path)
            assert "2026-q1" not in answer.text, (method, path)
            if answer.is_success:
                answered.add(path.rstrip("/") or "/")
    assert answered == ANSWERS


@pytest.mark.parametrize("prefix", ["file=", "file/"])
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "/proc/self/environ"]
)
def test_no_files_are_served_even_with_the_password(guarded, record, prefix, path):
    url, _ = guarded
    with httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/login", data={"username": "ada", "password": "secret"}).raise_for_status()
        for file in (path, str(record), quote(str(record), safe="")):
            answer = client.get(f"/gradio_api/{prefix}{file}")
            assert answer.status_code in (400, 403, 404), file
            assert b"SQLite" not in answer.content


def test_a_page_of_another_site_cannot_send_requests(url):
    with httpx.Client(base_url=url, trust_env=False) as client:
        for origin in ("http://evil.example", "null", f"{url}0"):
            assert client.post("/gradio_api/run/predict", json={}, headers={"Origin": origin}).status_code == 403
        assert client.get("/config", headers={"Origin": url}).status_code == 200


def test_a_foreign_host_name_for_this_machine_is_refused(url):
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/config", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/config", headers={"Host": "localhost:1"}).status_code == 200


def _routes(routes: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes(getattr(route.app, "routes", ()), prefix + route.path)
        elif included := getattr(route, "original_router", None):
            yield from _routes(included.routes, prefix)
        else:
            yield from ((method, prefix + route.path) for method in route.methods - {"HEAD", "OPTIONS"})
