"""The pieces of HTML that pages are built from: tables, badges, cards, forms."""

from collections.abc import Callable
from typing import NamedTuple

from markupsafe import Markup

from dashboard.ui.jinja import load
from db.tables import Headline, Score

# The macros of templates/components.html.
_html = load("components.html")
Macro = Callable[..., Markup]
badge: Macro = _html.badge
tick: Macro = _html.tick
card: Macro = _html.card
page_title: Macro = _html.page_title
table: Macro = _html.table
save_buttons: Macro = _html.save_buttons
code: Macro = _html.code
links: Macro = _html.links
tiles: Macro = _html.tiles
facts: Macro = _html.facts
form: Macro = _html.form
choice: Macro = _html.choice
search_field: Macro = _html.search_field
nothing: Macro = _html.nothing


class Cell(NamedTuple):
    content: object  # text or Markup
    css: str = ""
    value: object = None  # what a saved table holds, where that is not what the cell shows


def number(score: Score | Headline | None, interval: bool = True) -> Cell:
    """A cell with a score and its 95 % confidence interval."""
    if score is None or score.value is None:
        return Cell(nothing(), "number", "")
    return Cell(_html.number(score, interval), "number", score.value)


def change(before: float | None, after: float | None) -> Markup:
    return Markup() if before is None or after is None else _html.change(after - before)
