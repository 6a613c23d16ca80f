"""What all pages share: the look, the head, and how text from the record is shown."""

import html
import re
from dataclasses import fields
from pathlib import Path

import gradio as gr

from dashboard.charts import DARK, LIGHT, Palette

Pages = list[tuple[str, str]]
"""Title and path of each page that is in the navigation; the path of the first is empty."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def shown(text: object, limit: int = 300) -> str:
    """Text from documents, prompts, models or file names as HTML that can only be read.

    Control and direction marks become a visible sign, so that a name cannot pose as another; a long text is cut.
    """
    words = str(text)
    words = words if len(words) <= limit else words[: limit - 1] + "…"
    # Dollar signs and braces are spelt out too: Gradio's HTML component has a template language of its own.
    plain = html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", words))
    return f"<bdi>{plain.replace('$', '&#36;').replace('{', '&#123;')}</bdi>"


def head(project: str, here: str, pages: Pages) -> str:
    """The top of a page: the way to all others, with this one marked."""
    marked = {True: ' aria-current="page"', False: ""}
    links = "".join(f'<a href="{path or "./"}"{marked[path == here]}>{title}</a>' for title, path in pages)
    nav = f'<nav aria-label="Pages">{links}</nav>' if len(pages) > 1 else ""
    name = f'<span class="project">{shown(project, 80)}</span>' if project else ""
    return f'<header class="masthead"><a class="brand" href="./">recover</a>{name}{nav}</header>'


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
    )


def _variables(palette: Palette) -> str:
    return "".join(f"--{field.name}: {getattr(palette, field.name)};" for field in fields(palette))


STYLE = f":root {{{_variables(LIGHT)}}}\n.dark {{{_variables(DARK)}}}\n" + (
    Path(__file__).with_name("style.css").read_text(encoding="utf-8")
)
