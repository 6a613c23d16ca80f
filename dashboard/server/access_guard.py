"""Who may ask the pages for something, and what every answer says to the browser that shows it."""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    # The pages carry everything they need; should a library ever ask for a font or a script elsewhere, the browser
    # refuses. Gradio and plotly style inline and compile templates, hence the two "unsafe".
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Around an application: refuses what only a foreign page would ask.

    `only_local` refuses every name but this machine's own: with it, a name that somebody else made to lead here
    (DNS rebinding) opens nothing.
    """

    def __init__(self, app: ASGIApp, only_local: bool) -> None:
        self._app, self._only_local = app, only_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refused(Headers(scope=scope))
        await (PlainTextResponse(refused, 403) if refused else self._app)(_uncompressed(scope), receive, telling)

    def _refused(self, asked: Headers) -> str:
        asked_from, here = asked.get("origin"), asked.get("host", "")
        if self._only_local and not is_loopback(urlsplit(f"//{here}").hostname or ""):
            return "Open it at 127.0.0.1 or localhost."
        if (
            asked_from and urlsplit(asked_from).netloc != here
        ):  # another site's page, in the browser of somebody who may
            return "Only the dashboard's own pages may ask for that."
        return ""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _uncompressed(scope: Scope) -> Scope:
    """Gradio compresses all it sends, anew each time; for a browser on this machine nothing is gained by it."""
    if not is_loopback((scope.get("client") or ("",))[0]):
        return scope
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]}
