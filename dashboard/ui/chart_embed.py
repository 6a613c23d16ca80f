"""A place on a page, or in a report, where page.js has plotly draw a figure."""

import json
import math
from typing import Any

from dashboard.ui.charts import Figure
from dashboard.ui.layout import plain

PROGRAM = "plotly-basic-4.1.1.min.js"
"""Plotly's build with lines and bars alone, as npm has it (`plotly.js-basic-dist-min`): a browser reads it in a sixth
of the time that the whole takes. To renew it, put the newer file beside this one and name it here and in page.js."""


def chart(name: str, figure: Figure) -> str:
    """A place that has the figure's height before anything is drawn, so that nothing below it jumps."""
    told = plain(json.dumps(_finite(figure), separators=(",", ":"), allow_nan=False))
    height = figure["layout"]["height"]
    return f'<div class="chart" data-chart="{name}" data-figure="{told}" style="height: {height}px"></div>'


def _finite(value: Any) -> Any:
    """What JSON cannot say is a gap in a line."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def framed(name: str, figure: Figure) -> str:
    """The same in a card of its own."""
    return f'<section class="card">{chart(name, figure)}</section>'
