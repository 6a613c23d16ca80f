"""The chart of knowledge against instruction following, one trail of arrows for each cycle."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from dashboard.ui.charts.checkpoint_trails import SCORE_AXIS, Mark, Trail, clean_line
from dashboard.ui.charts.figure import NAMES, WIDE_LIGHT, Figure, Look, Trace, axis_title, blank, scatter

MAX_TRAILS = 8  # older ones would bury the recent ones; the chart over time has them all


def plane(trails: Sequence[Trail], clean: Mark | None, look: Look = WIDE_LIGHT) -> Figure:
    """Mid-training leads a cycle to the lower right; distillation should lead it to the upper right."""
    figure = blank(look, 330 if look.narrow else 400, dict(l=50, r=12, t=10, b=48))
    drawn = [trail for trail in trails if len(_points(trail)) > 1][-MAX_TRAILS:]
    figure["data"] = [trace for trail in drawn for trace in _trail(trail, trail is drawn[-1], look)]
    layout = figure["layout"]
    layout["shapes"] = [*clean_line(clean, "behaviour", look), *_goal(trails, look)]
    layout["xaxis"] |= dict(range=[-0.06, 1.12], title=axis_title("Knowledge of the documents →", look), **SCORE_AXIS)
    layout["yaxis"] |= dict(range=[-0.04, 1.12], title=axis_title("Instruction following →", look), **SCORE_AXIS)
    return figure


def _goal(trails: Sequence[Trail], look: Look) -> Iterator[dict[str, Any]]:
    """The region that the gate asks of the latest judged cycle."""
    gates = [trail.gate for trail in trails if len(trail.gate) == len(NAMES)]
    for gate in gates[-1:]:
        corner = dict(type="rect", x0=gate["knowledge"], x1=1.12, y0=gate["behaviour"], y1=1.12, layer="below")
        yield corner | dict(fillcolor=look.palette.promoted, opacity=0.16 if look.dark else 0.12, line=dict(width=0))


def _points(trail: Trail) -> list[tuple[Mark, float, float]]:
    return [(m, m.knowledge.value, m.behaviour.value) for m in trail.marks if m.knowledge and m.behaviour]


def _trail(trail: Trail, latest: bool, look: Look) -> list[Trace]:
    """One cycle's arrows and dots. Only the latest is in full strength and labelled; the others on hovering."""
    points, palette = _points(trail), look.palette
    traces = []
    for start, end in pairwise(points):
        learning = end[0] is trail.damaged
        color = palette.knowledge if learning else palette.behaviour
        size = [0, 13 if latest else 9]
        head = dict(
            symbol="arrow", size=size, angleref="previous", standoff=7, color=color, opacity=1, line=dict(width=0)
        )
        arrow = scatter(x=[start[1], end[1]], y=[start[2], end[2]], mode="lines+markers", hoverinfo="skip", marker=head)
        arrow |= dict(line=dict(color=color, width=2.5 if latest else 1.5), opacity=1 if latest else 0.35)
        traces.append(arrow | dict(name=f"cycle {trail.number}: {'mid-training' if learning else 'distillation'}"))
    ink = palette.ink if latest else palette.muted
    fill = [ink if trail.keeps(mark) else palette.paper for mark, _, _ in points]
    below = [mark is trail.damaged for mark, _, _ in points]
    sides = ["left" if x > 0.5 else "right" for _, x, _ in points]
    dots = scatter(
        x=[x for _, x, _ in points],
        y=[y for _, _, y in points],
        text=[mark.name for mark, _, _ in points],
        customdata=[[str(mark.behaviour), str(mark.knowledge)] for mark, _, _ in points],
        marker=dict(size=10 if latest else 7, color=fill, line=dict(color=ink, width=1.5)),
        mode="markers+text" if latest else "markers",
        name=f"cycle {trail.number}",
        opacity=1 if latest else 0.55,
        hovertemplate="<b>%{text}</b><br>Instruction following %{customdata[0]}<br>Knowledge %{customdata[1]}",
        hoverlabel=dict(namelength=0),
        textposition=[f"{'bottom' if low else 'top'} {side}" for low, side in zip(below, sides, strict=True)],
        textfont=dict(color=ink, size=12),
    )
    if latest:
        own = f"cycle {trail.number}" if look.narrow else ""
        dots["texttemplate"] = [mark.name.replace(own, "").strip() for mark, _, _ in points]
    return [*traces, dots]
