"""Text that is readable before Gradio has started: each page is sent with its first part already rendered.

Gradio sends an empty page and asks for its content once its own program runs. The first part stands in its place
until then. It is left out where a password is required: only Gradio knows who may read it.
"""

import json
from collections.abc import Callable, Mapping

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.ui.jinja import load
from dashboard.ui.layout import STYLE
from dashboard.ui.static_files import read_static

Renderers = Mapping[str, Callable[[str], str]]  # by path: browser state (polling.BROWSER_STATE_JS) -> HTML
GRADIO_ELEMENT = b"<gradio-app"
_html = load("layout.html")


class FirstPaint:
    def __init__(self, app: ASGIApp, renderers: Renderers) -> None:
        self._app, self._renderers = app, renderers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        render = self._renderers.get(scope.get("path", "").strip("/"))
        if scope["type"] != "http" or scope["method"] != "GET" or render is None:
            await self._app(scope, receive, send)
            return
        content = await run_in_threadpool(render, initial_browser_state(scope["query_string"].decode("latin-1")))
        pending: list[Message] = []

        async def send_with_content(message: Message) -> None:
            if message["type"] == "http.response.start":
                pending.append(message)
                return
            if pending:
                start, complete = pending.pop(), not message.get("more_body")
                body = message.get("body", b"")
                if complete and start["status"] == 200 and body.count(GRADIO_ELEMENT) == 1:
                    first = first_paint_html(content).encode()
                    message = {**message, "body": body.replace(GRADIO_ELEMENT, first + GRADIO_ELEMENT)}
                    MutableHeaders(scope=start)["content-length"] = str(len(message["body"]))
                await send(start)
            await send(message)

        uncompressed = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": uncompressed}, receive, send_with_content)


def initial_browser_state(query: str) -> str:
    """The exact state text of a browser with a wide, light window: its own request then hits the cache."""
    search = f"?{query}" if query else ""
    return json.dumps({"dark": False, "narrow": False, "search": search}, separators=(",", ":"))


def first_paint_html(content: str) -> str:
    """The part of a page above its first form: an input that somebody has started to fill in must not be replaced."""
    above, form, _ = content.partition("<form")
    above += "</section>" if form else ""  # every form is inside of one
    style, script = STYLE + read_static("first_paint.css"), read_static("first_paint.js")
    return _html.first_paint(Markup(style), Markup(above), Markup(script))
