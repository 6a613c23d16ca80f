"""The pieces of HTML that pages and reports are built from: text, numbers, tables, badges, cards, forms, charts.

Finished HTML has the type `markupsafe.Markup`. Templates escape every other value, so no caller has to remember to.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from dashboard.ui.charts.figure import Figure
from db.tables import Headline, Score

STAGE_NAMES = {"midtrain": "Mid-training", "distill": "Distillation", "eval": "Evaluation"}  # by kind of run
MAX_NOTE_LENGTH = 20_000  # characters
# Control and direction marks: with them a name could pose as another one.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_PLAIN = re.compile(r"[\w .,:-]*")  # nothing to escape: most values, such as numbers
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
# Plotly's build with lines and bars only (`plotly.js-basic-dist-min` on npm): a browser reads it in a sixth of the
# time that the whole takes. To renew it, put the newer file into `static` and name it here and in page.js.
PLOTLY = "plotly-basic-4.1.1.min.js"
_CHARTS = {
    "over-time": "Over the cycles",
    "plane": "New knowledge against what must stay",
    "curves": "Curves",
    "divergence": "Divergence by position",
}  # titles


def clock(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def duration(time: timedelta) -> str:
    """`3 min 12 s`: the two largest units."""
    seconds = round(time.total_seconds())
    if seconds == 0 and time:
        return "under 1 s"
    units = [("d", 86400), ("h", 3600), ("min", 60), ("s", 1)]
    parts: list[str] = []
    for name, size in units:
        if seconds >= size or (name == "s" and not parts):
            parts.append(f"{seconds // size} {name}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:2])


def size(count: float | None) -> str:
    """`9.4 MB`"""
    if count is None:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


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


# The macros of templates/components.html.
_html = load("components.html")
Macro = Callable[..., Markup]
badge: Macro = _html.badge
tick: Macro = _html.tick
card: Macro = _html.card
page_title: Macro = _html.page_title
table: Macro = _html.table
code: Macro = _html.code
links: Macro = _html.links
tiles: Macro = _html.tiles
form: Macro = _html.form
choice: Macro = _html.choice
search_field: Macro = _html.search_field
nothing: Macro = _html.nothing
with_note: Macro = _html.with_note


class Cell(NamedTuple):
    content: object  # text or Markup
    css: str = ""
    value: object = None  # what a saved table holds, where that is not what the cell shows


def score_cell(value: float | None) -> Cell:
    return Cell(nothing(), "number", "") if value is None else Cell(f"{value:.3f}", "number", value)


def number(score: Score | Headline | None) -> Cell:
    """A cell with a score and its 95 % confidence interval."""
    if score is None or score.value is None:
        return Cell(nothing(), "number", "")
    return Cell(_html.number(score), "number", score.value)


def change(before: float | None, after: float | None) -> Markup:
    return Markup() if before is None or after is None else _html.change(after - before)


def chart(name: str, figure: Figure, narrow: Figure | None = None) -> Markup:
    """An element with the figure's height from the start, so that nothing below it jumps. A page that no server can
    draw again for a phone, a report, has the figure for narrow windows beside the other."""
    other = _json(narrow) if narrow else ""
    return _html.chart(_CHARTS.get(name, name), name, _json(figure), figure["layout"]["height"], other)


def chart_card(name: str, figure: Figure) -> Markup:
    return _html.chart_card(chart(name, figure))


def _json(figure: Figure) -> Markup:
    return escape_text(json.dumps(_finite(figure), separators=(",", ":"), allow_nan=False))


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None: a gap in the line."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
