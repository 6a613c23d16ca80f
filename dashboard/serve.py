"""Serving the pages: to this machine alone, unless the address is guarded by a password."""

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response

from dashboard.app import build
from dashboard.frame import STYLE, theme
from db.queries import Reader

FIRST_PORT, PORTS = 7860, 100
HEADERS = {
    # The pages carry everything they need; should a library ever ask for a font or a script elsewhere, the browser
    # refuses. Gradio and plotly style inline and compile templates, hence the two "unsafe".
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ServeError(ValueError):
    """The dashboard cannot be opened as asked; the text says what to do."""


LOOPBACK = "127.0.0.1"


def serve(
    reader: Reader, host: str = LOOPBACK, port: int | None = None, auth: str | None = None, project: str | None = None
) -> None:
    """Serve until interrupted."""
    with opened(reader, host, port, auth, project) as url:
        print(f"The dashboard is at {url} (Ctrl-C closes it).", flush=True)
        threading.Event().wait()


@contextmanager
def opened(
    reader: Reader, host: str = LOOPBACK, port: int | None = None, auth: str | None = None, project: str | None = None
) -> Iterator[str]:
    """The dashboard of a project, answering at the address this yields. `auth` is `USER:PASSWORD`."""
    credentials = _credentials(host, auth)
    listener = _listen(host, port)
    app = application(reader, credentials, project)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise ServeError("The dashboard's server did not start; its reason is printed above.")
        time.sleep(0.02)
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        # An open page keeps a connection; leaving neither waits for it long nor complains of cutting it.
        server.config.timeout_graceful_shutdown = 1
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server.should_exit = True
        thread.join(10)


def application(reader: Reader, credentials: tuple[str, str] | None = None, project: str | None = None) -> FastAPI:
    """The pages as a web application, for a server of one's own too."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    # Mounted rather than launched: launching probes its own address through any proxy and offers to share when
    # that fails. Nothing here is shared, reported or fetched.
    return gr.mount_gradio_app(
        app,
        build(reader, project),
        path="/",
        auth=credentials,
        theme=theme(),
        css=STYLE,
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
    )


def _credentials(host: str, auth: str | None) -> tuple[str, str] | None:
    if auth is None:
        if not _is_loopback(host):
            raise ServeError(f"{host or 'That'} is an address others can reach: guard it with --auth USER:PASSWORD.")
        return None
    user, _, password = auth.partition(":")
    if not user or not password:
        raise ServeError("Write --auth as USER:PASSWORD, neither of them empty.")
    return user, password


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, or on the first free one from 7860 up."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return socket.create_server((host, candidate), family=family)
        except OSError as error:
            problem = error
    what = f"port {port}" if port is not None else f"any port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}"
    raise ServeError(f"Cannot listen on {what} of {host}: {problem.strerror}. Name another with --port or --host.")
