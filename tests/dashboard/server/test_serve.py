import socket

import gradio as gr
import httpx
import pytest

from dashboard.server.serve import ServeError, ServerOptions, open_dashboard


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "", "example.org"])
def test_an_address_that_others_can_reach_needs_a_password(reader, host):
    with pytest.raises(ServeError, match="--auth USER:PASSWORD"), open_dashboard(reader, ServerOptions(host)):
        pass


@pytest.mark.parametrize("auth", ["ada", "ada:", ":secret", ""])
def test_an_incomplete_credential_is_refused(reader, auth):
    with pytest.raises(ServeError, match="USER:PASSWORD"), open_dashboard(reader, ServerOptions(auth=auth)):
        pass


def test_a_port_in_use_is_an_error(reader):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match="--port"), open_dashboard(reader, ServerOptions(port=port)):
            pass


def test_the_page_may_only_load_from_its_own_address(url):
    answer = httpx.get(url, trust_env=False)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_only_the_right_password_opens_the_pages(reader):
    with (
        open_dashboard(reader, ServerOptions(auth="ada:se:cret")) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        assert '"dependencies":[]' in client.get("/").text  # the log-in page is an empty application
        assert client.post("/login", data={"username": "ada", "password": "wrong"}).status_code == 400
        assert client.get("/config").status_code == 401
        assert client.post("/login", data={"username": "ada", "password": "se:cret"}).status_code == 200
        assert client.get("/config").status_code == 200


def test_nothing_is_reported_to_anyone(reader, monkeypatch):
    monkeypatch.setattr(gr.analytics, "_do_analytics_request", lambda *_, **__: pytest.fail("telemetry"))
    monkeypatch.setattr(gr.analytics, "version_check", lambda: pytest.fail("version check"))
    with open_dashboard(reader):
        pass
