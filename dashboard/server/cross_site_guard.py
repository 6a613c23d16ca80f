"""Refusing requests from other sites, and the security headers of every response."""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    # Pages carry everything they need: the browser refuses a font or a script from elsewhere, should a library ask
    # for one. Gradio and plotly style inline and compile templates, hence the two "unsafe".
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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
        await app(_uncompressed(scope), receive, send_with_headers)

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
    """Turn off compression for a browser on this machine: Gradio would compress every response anew for no gain."""
    if not is_loopback((scope.get("client") or ("",))[0]):
        return scope
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]}
