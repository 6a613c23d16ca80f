"""What all pages share: the look, the head, and how text from the record is shown."""

import html
import re
from dataclasses import fields
from urllib.parse import urlencode

import gradio as gr
from markdown_it import MarkdownIt

from dashboard.ui.charts import DARK, LIGHT, Palette
from dashboard.ui.static_files import read_static

Pages = list[tuple[str, str]]
"""Title and path of each page that is in the navigation; the path of the first is empty."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
LONGEST_NOTE = 20_000


def shown(text: object, limit: int = 300) -> str:
    """Text from documents, prompts, models or file names as HTML that can only be read.

    Control and direction marks become a visible sign, so that a name cannot pose as another; a long text is cut.
    """
    return f"<bdi>{plain(_cut(str(text), limit))}</bdi>"


def plain(text: str) -> str:
    """The same without a frame: for attributes, and for pieces of a text that stands in a frame of its own."""
    return _inert(html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)))


def markdown(text: str) -> str:
    """A person's Markdown as HTML: no HTML of its own, no pictures from elsewhere, no links that run something."""
    words = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _cut(text, LONGEST_NOTE))
    return _inert(_MARKDOWN.render(words))


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def link(path: str, words: str, /, **query: object) -> str:
    """A way to a page, what it is to show in the address, whatever that is called. `words` are HTML already."""
    return f'<a href="{address(path, **query)}">{words}</a>'


def address(path: str, /, **query: object) -> str:
    asked = urlencode({name: value for name, value in query.items() if value not in (None, "")})
    return html.escape(f"{path or './'}{'?' if asked else ''}{asked}")


def head(project: str, here: str, pages: Pages) -> str:
    """The top of a page: the way to all others, with this one marked."""
    marked = {True: ' aria-current="page"', False: ""}
    links = "".join(f'<a href="{path or "./"}"{marked[path == here]}>{title}</a>' for title, path in pages)
    nav = f'<nav aria-label="Pages">{links}</nav>' if len(pages) > 1 else ""
    name = f'<span class="project">{shown(project, 80)}</span>' if project else ""
    return f'<header class="masthead"><a class="brand" href="./">recover</a>{nav}{name}</header>'


def theme() -> gr.themes.Base:
    """Fonts that ship with Gradio or the system has: a page must not fetch anything from elsewhere.

    Weight 600 of the shipped font lacks most letters, so bold is 700.
    """
    sans = [gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"]
    mono = [gr.themes.LocalFont("IBM Plex Mono", weights=(400,)), "ui-monospace", "monospace"]
    return gr.themes.Base(font=sans, font_mono=mono).set(
        body_background_fill="#f6f7f9",
        body_background_fill_dark="#0e1217",
        body_text_color=LIGHT.ink,
        body_text_color_dark=DARK.ink,
        button_primary_background_fill=LIGHT.behaviour,
        button_primary_background_fill_dark=DARK.behaviour,
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#0e1217",
    )


def _cut(words: str, limit: int) -> str:
    return words if len(words) <= limit else words[: limit - 1] + "…"


def _inert(markup: str) -> str:
    """Dollar signs and braces are spelt out: Gradio's HTML component has a template language of its own."""
    return markup.replace("$", "&#36;").replace("{", "&#123;")


def _variables(palette: Palette) -> str:
    return "".join(f"--{field.name}: {getattr(palette, field.name)};" for field in fields(palette))


STYLE = f":root {{{_variables(LIGHT)}}}\n.dark {{{_variables(DARK)}}}\n" + read_static("style.css")
SCRIPT = f"<script>{read_static('page.js')}</script>"
"""What the browser does by itself: saving a table or a chart that it shows."""
