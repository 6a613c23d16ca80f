"""The Jinja environment that makes the HTML of all pages and reports.

Finished HTML has the type `markupsafe.Markup`. Templates escape every other value, so no caller has to remember to.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from dashboard.ui.number_formats import clock

MAX_NOTE_LENGTH = 20_000  # characters
# Control and direction marks: with them a name could pose as another one.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_PLAIN = re.compile(r"[\w .,:-]*")  # nothing to escape: most values, such as numbers
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def escape_text(value: object) -> Markup:
    """Return a value as HTML that can only be read. Markup is returned unchanged."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return Markup(text) if _PLAIN.fullmatch(text) else _neutralize(escape(_printable(text)))


def bdi(value: object, limit: int = 300) -> Markup:
    """Return text from the record, cut after `limit` characters, in an element that isolates its direction."""
    return Markup("<bdi>{}</bdi>").format(escape_text(_cut(str(value), limit)))


def markdown(text: str) -> Markup:
    """Render a person's Markdown without raw HTML, images or links that run code."""
    return _neutralize(_MARKDOWN.render(_printable(_cut(text, MAX_NOTE_LENGTH))))


def address(path: str, /, **query: object) -> str:
    """The address of a page; empty query values are left out."""
    used = urlencode({name: value for name, value in query.items() if value not in (None, "")})
    return f"{path or './'}{'?' if used else ''}{used}"


def link(path: str, text: object, /, **query: object) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address(path, **query), escape_text(text))


def join(parts: Any, separator: str = "") -> Markup:
    return Markup(separator).join(escape_text(part) for part in parts)


def load(template: str) -> Any:
    """The macros of a file in `dashboard/ui/templates`, as functions that return Markup."""
    return _ENVIRONMENT.get_template(template).module


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _neutralize(html: str) -> Markup:
    """Spell out dollar signs and braces: Gradio's HTML component has a template language of its own."""
    return Markup(str(html).replace("$", "&#36;").replace("{", "&#123;"))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=escape_text,  # applied to every printed value
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"bdi": bdi, "clock": clock, "join_html": join, "markdown": markdown}
_ENVIRONMENT.globals |= {"link": link}
