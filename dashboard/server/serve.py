"""Serving the pages: on this machine only, unless a password protects the address."""

import logging
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import gradio as gr
import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse

from dashboard.actions import Actions
from dashboard.app import build_app
from dashboard.server.middleware import CrossSiteGuard, FirstPaint, is_loopback
from dashboard.ui.html import PLOTLY
from dashboard.ui.layout import SCRIPT, STATIC, STYLE, theme
from db.queries import Reader

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORT_COUNT = 7860, 100


class ServeError(ValueError):
    """The dashboard cannot be served. The message says what to do."""


@dataclass(frozen=True)
class ServerOptions:
    """The address of the pages and who may open them."""

    host: str = LOOPBACK
    port: int | None = None
    auth: str | None = None  # `USER:PASSWORD`
    unsafe_no_auth: bool = False


def serve(reader: Reader, options: ServerOptions, project: str | None, actions: Actions) -> None:
    """Serve until interrupted."""
    with open_dashboard(reader, options, project, actions) as url:
        print(f"The dashboard is at {url} (Ctrl-C closes it).", flush=True)
        threading.Event().wait()


@contextmanager
def open_dashboard(
    reader: Reader,
    options: ServerOptions = ServerOptions(),
    project: str | None = None,
    actions: Actions = Actions(),  # noqa: B008
) -> Iterator[str]:
    """Serve the dashboard of a project in a thread; yields its address."""
    credentials = _credentials(options)
    listener = _listen(options.host, options.port)
    app = create_app(reader, credentials, project, actions, only_local=is_loopback(options.host) and not credentials)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise ServeError("The dashboard's server did not start. The reason is printed above.")
        time.sleep(0.02)
    try:
        host = f"[{options.host}]" if ":" in options.host else options.host
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        # An open page keeps its connection: do not wait for it long, nor log that it was cut.
        server.config.timeout_graceful_shutdown = 1
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server.should_exit = True
        thread.join(3)


def create_app(
    reader: Reader, credentials: tuple[str, str] | None, project: str | None, actions: Actions, only_local: bool
) -> FastAPI:
    """The pages as a web application, also for other servers. For `only_local` see `CrossSiteGuard`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    blocks, dashboard = build_app(reader, project, actions)
    if credentials is None:
        app.add_middleware(FirstPaint, renderers=dashboard.first_paints)
    app.add_middleware(CrossSiteGuard, only_local=only_local)
    app.add_api_route(f"/{PLOTLY}", _plotly, methods=["GET"], include_in_schema=False)

    # Mounted rather than launched: launching probes its own address through any proxy and offers to share the page
    # publicly when that fails. Nothing here is shared, reported or fetched.
    warnings.filterwarnings("ignore", message="SSR mode is not supported")  # ssr_mode is off below
    return gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        auth=credentials,
        theme=theme(),
        css=STYLE,
        head=SCRIPT,
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
    )


def _plotly() -> FileResponse:
    """The chart library. Its name contains its version, so a browser may cache it for ever."""
    return FileResponse(STATIC / PLOTLY, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _credentials(options: ServerOptions) -> tuple[str, str] | None:
    if options.auth is None:
        if not is_loopback(options.host) and not options.unsafe_no_auth:
            address = f"The address {options.host}" if options.host else "This address"
            raise ServeError(
                f"{address} can be reached by other machines. Protect it with --auth USER:PASSWORD, "
                "or allow everybody with --unsafe-no-auth."
            )
        return None
    user, _, password = options.auth.partition(":")
    if not user or not password:
        raise ServeError("The value of --auth must be USER:PASSWORD, with neither part empty.")
    return user, password


def _listen(host: str, port: int | None) -> socket.socket:
    """Open a socket on the requested port, by default on the first free one from 7860 up."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + PORT_COUNT):
        try:
            return socket.create_server((host, candidate), family=family)
        except OSError as error:
            problem = error
    ports = f"port {port}" if port is not None else f"any port from {FIRST_PORT} to {FIRST_PORT + PORT_COUNT - 1}"
    raise ServeError(
        f"Cannot listen on {ports} of {host}: {problem.strerror}. Choose another one with --port or --host."
    )
