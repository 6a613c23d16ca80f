"""What a page says before Gradio has begun: its first words come with the page itself, not a second later.

Gradio sends an empty page, and asks for its content once its own program runs. These words stand in its place until
that content comes. Where a password is asked for there are none: only Gradio knows who may read them.
"""

import json
from collections.abc import Callable, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.ui.layout import STYLE
from dashboard.ui.static_files import read_static

Words = Mapping[str, Callable[[str], str]]
"""By page, its first part as HTML, when it is told what a browser says (`follow.SEE`)."""
PLACE = b"<gradio-app"


class FirstWords:
    def __init__(self, app: ASGIApp, words: Words) -> None:
        self._app, self._words = app, words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here = scope.get("path", "").strip("/")
        if scope["type"] != "http" or scope["method"] != "GET" or here not in self._words:
            await self._app(scope, receive, send)
            return
        told = await run_in_threadpool(self._words[here], said_at_first(scope["query_string"].decode("latin-1")))
        begun: list[Message] = []

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            if begun:
                start, whole = begun.pop(), not message.get("more_body")
                body = message.get("body", b"")
                if whole and start["status"] == 200 and body.count(PLACE) == 1:
                    message = {**message, "body": body.replace(PLACE, first_view(told).encode() + PLACE)}
                    MutableHeaders(scope=start)["content-length"] = str(len(message["body"]))
                await send(start)
            await send(message)

        plainly = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": plainly}, receive, telling)


def said_at_first(query: str) -> str:
    """What a browser with a wide, light window would say; word for word, so that its own question finds it made."""
    search = f"?{query}" if query else ""
    return json.dumps({"dark": False, "narrow": False, "search": search}, separators=(",", ":"))


def first_view(words: str) -> str:
    """Only what can be read: what somebody begins to fill in must not be taken away."""
    told, form, _ = words.partition("<form")
    told += "</section>" if form else ""  # in which every form stands
    style = STYLE + read_static("first_paint.css")
    return f'<div id="first"><style>{style}</style>{told}</div><script>{read_static("first_paint.js")}</script>'
