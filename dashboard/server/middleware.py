"""What stands before every request: the refusal of other sites, security headers, and the first paint of each page."""

import ipaddress
import json
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.ui.html import load
from dashboard.ui.layout import STYLE, read_static

HEADERS = {
    # Pages carry everything they need: the browser refuses a font or a script from elsewhere, should a library ask
    # for one. Gradio and plotly style inline and compile templates, hence the two "unsafe".
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Renderers = Mapping[str, Callable[[str], str]]  # by path: browser state (polling.BROWSER_STATE_JS) -> HTML
GRADIO_ELEMENT = b"<gradio-app"
_html = load("layout.html")


class CrossSiteGuard:
    """Middleware that refuses requests which only another site's page would send.

    `only_local` also refuses every host name but this machine's own, against DNS rebinding.
    """

    def __init__(self, app: ASGIApp, only_local: bool) -> None:
        self._app, self._only_local = app, only_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        rejection_reason = self._rejection_reason(Headers(scope=scope))
        app = PlainTextResponse(rejection_reason, 403) if rejection_reason else self._app
        # For a browser on this machine Gradio would compress every response anew, for no gain.
        is_local = is_loopback((scope.get("client") or ("",))[0])
        await app(_uncompressed(scope) if is_local else scope, receive, send_with_headers)

    def _rejection_reason(self, headers: Headers) -> str:
        origin, host = headers.get("origin"), headers.get("host", "")
        if self._only_local and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            return "Open the dashboard at 127.0.0.1 or localhost."
        if origin and urlsplit(origin).netloc != host:  # another site's page in the browser of an authorised user
            return "Only the dashboard's own pages may send requests to it."
        return ""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _uncompressed(scope: Scope) -> Scope:
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]}


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

        await self._app(_uncompressed(scope), receive, send_with_content)


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
