"""The element in which page.js has plotly draw a figure, on a page or in a report."""

import json
import math
from typing import Any

from markupsafe import Markup

from dashboard.ui.charts.figure import Figure
from dashboard.ui.jinja import escape_text

# Plotly's build with lines and bars only (`plotly.js-basic-dist-min` on npm): a browser reads it in a sixth of the
# time that the whole takes. To renew it, put the newer file into `static` and name it here and in page.js.
PLOTLY = "plotly-basic-4.1.1.min.js"
_ELEMENT = Markup('<div class="chart" data-chart="{}" data-figure="{}"{} style="height: {}px"></div>')
_NARROW = Markup(' data-narrow="{}"')


def chart(name: str, figure: Figure, narrow: Figure | None = None) -> Markup:
    """An element with the figure's height from the start, so that nothing below it jumps. A page that no server can
    draw again for a phone, a report, has the figure for narrow windows beside the other."""
    other = _NARROW.format(_json(narrow)) if narrow else ""
    return _ELEMENT.format(name, _json(figure), other, figure["layout"]["height"])


def chart_card(name: str, figure: Figure) -> Markup:
    return Markup('<section class="card">{}</section>').format(chart(name, figure))


def _json(figure: Figure) -> Markup:
    return escape_text(json.dumps(_finite(figure), separators=(",", ":"), allow_nan=False))


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None: a gap in the line."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
