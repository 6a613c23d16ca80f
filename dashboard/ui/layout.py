"""What all pages share: style sheet, scripts, theme, and the frame around the content."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import gradio as gr
from markupsafe import Markup

from dashboard.ui.charts.figure import DARK, LIGHT, Palette
from dashboard.ui.html import load

STATIC = Path(__file__).parents[1] / "static"
Pages = list[tuple[str, str]]  # title and path of each page in the navigation; the path of the first is empty


def read_static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


_html = load("layout.html")
masthead: Callable[[str, str, Pages], Markup] = _html.masthead
no_cycles: Callable[[], Markup] = _html.no_cycles
not_found: Callable[[object], Markup] = _html.not_found
error: Callable[..., Markup] = _html.error


def theme() -> gr.themes.Base:
    """A theme with fonts of Gradio or the system: a page must not fetch anything from elsewhere.

    Weight 600 of Gradio's font lacks most letters, so bold is 700.
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


def _variables(palette: Palette) -> str:
    return "".join(f"--{field.name}: {getattr(palette, field.name)};" for field in fields(palette))


STYLE = f":root {{{_variables(LIGHT)}}}\n.dark {{{_variables(DARK)}}}\n" + read_static("style.css")
SCRIPT = f"<script>{read_static('page.js')}</script>"  # saves tables and charts, draws charts
