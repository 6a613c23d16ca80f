"""Serving the pages: to this machine alone, unless the address is guarded by a password."""

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
from dashboard.app import build
from dashboard.server.access_guard import Guard, is_loopback
from dashboard.server.first_paint import FirstWords
from dashboard.ui.chart_embed import PROGRAM
from dashboard.ui.layout import SCRIPT, STYLE, theme
from dashboard.ui.static_files import STATIC
from db.queries import Reader

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 7860, 100


class ServeError(ValueError):
    """The dashboard cannot be opened as asked; the text says what to do."""


@dataclass(frozen=True)
class Door:
    """Where the pages are to be had, and who gets in. `auth` is `USER:PASSWORD`."""

    host: str = LOOPBACK
    port: int | None = None
    auth: str | None = None
    unsafe_no_auth: bool = False


def serve(reader: Reader, door: Door, project: str | None = None, actions: Actions = Actions()) -> None:  # noqa: B008
    """Serve until interrupted."""
    with opened(reader, door, project, actions) as url:
        print(f"The dashboard is at {url} (Ctrl-C closes it).", flush=True)
        threading.Event().wait()


@contextmanager
def opened(
    reader: Reader,
    door: Door = Door(),
    project: str | None = None,
    actions: Actions = Actions(),  # noqa: B008
) -> Iterator[str]:
    """The dashboard of a project, answering at the address this yields."""
    credentials = _credentials(door)
    listener = _listen(door.host, door.port)
    app = application(reader, credentials, project, actions, only_local=is_loopback(door.host) and not credentials)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise ServeError("The dashboard's server did not start; its reason is printed above.")
        time.sleep(0.02)
    try:
        shown = f"[{door.host}]" if ":" in door.host else door.host
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        # An open page keeps a connection; leaving neither waits for it long nor complains of cutting it.
        server.config.timeout_graceful_shutdown = 1
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server.should_exit = True
        thread.join(10)


def application(
    reader: Reader,
    credentials: tuple[str, str] | None = None,
    project: str | None = None,
    actions: Actions = Actions(),  # noqa: B008
    only_local: bool = False,
) -> FastAPI:
    """The pages as a web application, for a server of one's own too; `only_local` as `Guard` has it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    blocks, site = build(reader, project, actions)
    if credentials is None:
        app.add_middleware(FirstWords, words=site.first_words)
    app.add_middleware(Guard, only_local=only_local)
    app.add_api_route(f"/{PROGRAM}", _program, methods=["GET"], include_in_schema=False)

    # Mounted rather than launched: launching probes its own address through any proxy and offers to share when
    # that fails. Nothing here is shared, reported or fetched.
    warnings.filterwarnings("ignore", message="SSR mode is not supported")  # nor asked for
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


def _program() -> FileResponse:
    """What draws the charts. Its name holds its version, so a browser may keep it for good."""
    return FileResponse(STATIC / PROGRAM, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _credentials(door: Door) -> tuple[str, str] | None:
    if door.auth is None:
        if not is_loopback(door.host) and not door.unsafe_no_auth:
            who = f"{door.host or 'That'} is an address others can reach"
            raise ServeError(f"{who}: guard it with --auth USER:PASSWORD (or insist with --unsafe-no-auth).")
        return None
    user, _, password = door.auth.partition(":")
    if not user or not password:
        raise ServeError("Write --auth as USER:PASSWORD, neither of them empty.")
    return user, password


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
