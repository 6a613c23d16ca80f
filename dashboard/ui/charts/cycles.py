"""The charts of cycles: measures and drift over time, and new knowledge against what must not be lost for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from dashboard.ui.charts.figure import (
    NAMES,
    WIDE_LIGHT,
    Axis,
    Figure,
    Look,
    Trace,
    axis_title,
    blank,
    new_axis,
    scatter,
)

NOT_PROMOTED = ("rejected", "inconclusive")
SCORE_AXIS = dict(tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1], tickformat=".1f")
SYMBOLS: dict[Axis, str] = {
    "behaviour": "circle",
    "knowledge": "diamond",
    "earlier": "triangle-up",
    "retention": "square",
}
DRIFT: dict[str, tuple[str, Axis]] = {  # by metric of the suite `drift`
    "kl_from_clean": ("Drift, own replies", "behaviour"),
    "kl_from_clean/new_task": ("Drift, new task", "knowledge"),
}
# By measure, the name of its curve, and the measure that it has the colour and the marks of.
CURVES: dict[str, tuple[str, Axis]] = {**{axis: (name, axis) for axis, name in NAMES.items()}, **DRIFT}
PANELS: tuple[tuple[str, ...], ...] = (("behaviour", "retention"), ("knowledge", "earlier"), tuple(DRIFT))  # over time
DRIFT_TITLE = "KL from the clean model, nats a token"
KEPT: tuple[Axis, ...] = ("behaviour", "retention", "earlier")  # against new knowledge, from the top
SPACE = 0.09  # between two panels, as a share of the height
LOW, HIGH = -0.04, 1.08  # the ends of the score axis, with space for a mark at 0 and at 1
MAX_MARKS = 80  # only the last points have marks: a browser draws each one by itself
MAX_INTERVALS = 40  # only the last points have intervals: more are slow to draw and cannot be read
MAX_TRAILS = 8  # older ones would bury the recent ones; the chart over time has them all


@dataclass(frozen=True)
class Level:
    """A score and, if known, its 95 % confidence interval."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = field(default=0, compare=False)  # items
    evaluation: int | None = field(default=None, compare=False)
    items: tuple[Any, ...] = field(default=(), compare=False)  # as of `Headline`

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" (95 %: {self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True)
class Mark:
    """One measured checkpoint."""

    name: str
    levels: Mapping[str, Level] = field(default_factory=dict)  # by measure, and by metric of drift

    def level(self, measure: str) -> Level | None:
        return self.levels.get(measure)


@dataclass(frozen=True)
class Trail:
    """One cycle: its starting checkpoint, then after mid-training, then after distillation."""

    number: int
    status: str
    start: Mark
    damaged: Mark | None = None
    recovered: Mark | None = None
    gate: Mapping[str, float] = field(default_factory=dict)  # the scores needed for promotion

    @property
    def marks(self) -> list[Mark]:
        return [mark for mark in (self.start, self.damaged, self.recovered) if mark is not None]

    def keeps(self, mark: Mark) -> bool:
        """False for the end of a cycle that was not promoted: it is rolled back."""
        return not (self.status in NOT_PROMOTED and mark is self.recovered)


def end_name(status: str) -> str:
    """The name of the checkpoint at the end of a cycle."""
    return status if status in NOT_PROMOTED else "recovered"


def clean_line(clean: Mark | None, measure: str, look: Look, panel: int) -> Iterator[dict[str, Any]]:
    """A dotted line at the clean model's score, if that is known."""
    if clean is not None and (level := clean.level(measure)) is not None:
        line = dict(type="line", xref="paper", x0=0, x1=1, y0=level.value, y1=level.value, yref=_axis_id(panel))
        yield line | dict(line=dict(color=_color(measure, look), width=1, dash="dot"), opacity=0.75)


def over_time(trails: Sequence[Trail], clean: Mark | None, look: Look = WIDE_LIGHT) -> Figure:
    """Draw all measures and drift across all cycles, two steps per cycle: mid-training, then distillation.

    Steps are evenly spaced: on a time axis, minutes of training would vanish between cycles months apart. A measure
    that was never made, and a panel of such measures, is left out.
    """
    labelled = _all_labelled(trails, look)
    measured = [tuple(measure for measure in panel if _is_measured(trails, measure)) for panel in PANELS]
    panels = [measures for measures in measured if measures] or [PANELS[0]]
    height = {1: (300, 400), 2: (460, 520), 3: (620, 640)}[len(panels)][not look.narrow]
    figure = blank(look, height, dict(l=32, r=12 if look.narrow else 172, t=26, b=44 if labelled else 28))
    layout = figure["layout"]
    domains = _add_panels(figure, len(panels), look)
    layout["shapes"], layout["annotations"] = [], [*_span_labels(trails, look)]
    for panel, (measures, domain) in enumerate(zip(panels, domains, strict=True)):
        is_drift = measures[0] in DRIFT
        top = _highest(trails, measures) if is_drift else 1.0
        traces = [_spans(trails, target, look, top) for target in ("behaviour", "knowledge")]
        traces += [t for measure in measures for t in (_gates(trails, measure, look), *_curve(trails, measure, look))]
        figure["data"] += [trace | dict(yaxis=_axis_id(panel)) for trace in traces]
        layout["shapes"] += [line for measure in measures for line in clean_line(clean, measure, look, panel)]
        layout["annotations"] += _end_labels(trails, measures, look, panel, domain, top)
        layout["annotations"] += [_panel_title(DRIFT_TITLE, panel, look)] if is_drift else []
        ticks = dict(nticks=5, tickformat=".2~g") if is_drift else SCORE_AXIS
        layout[_axis_name(panel)] |= dict(range=[LOW * top, HIGH * top], **ticks)
    # A long history opens at its end, where single cycles can be told apart; a double click shows all of it.
    first = 2 * max(0, len(trails) - _max_cycles(look))
    layout["xaxis"] |= dict(range=[first - 0.25, 2 * len(trails) + 0.25], showgrid=False, **_ticks(trails, look))
    return figure


def _is_measured(trails: Sequence[Trail], measure: str) -> bool:
    return any(mark.level(measure) is not None for trail in trails for mark in trail.marks)


def _highest(trails: Sequence[Trail], measures: Sequence[str]) -> float:
    """The highest end of an interval, with space for the panel's title above it."""
    levels = [mark.level(measure) for measure in measures for trail in trails for mark in trail.marks]
    return 1.15 * max((level.value if level.high is None else level.high for level in levels if level), default=0) or 1


def _color(measure: str, look: Look) -> str:
    return look.palette.of(CURVES[measure][1])


def _panel_title(text: str, panel: int, look: Look) -> dict[str, Any]:
    """Inside the panel, at its upper left."""
    corner = dict(x=0, xref="paper", xanchor="left", y=1, yref=f"{_axis_id(panel)} domain", yanchor="top")
    return corner | dict(text=text, showarrow=False, font=dict(color=look.palette.muted, size=11))


def _axis_id(panel: int) -> str:
    return f"y{panel + 1}" if panel else "y"


def _axis_name(panel: int) -> str:
    return f"yaxis{panel + 1}" if panel else "yaxis"


def _add_panels(figure: Figure, count: int, look: Look) -> list[tuple[float, float]]:
    """Stack so many panels on one horizontal axis; return where each begins and ends, the top one first."""
    share = (1 - SPACE * (count - 1)) / count
    tops = [1 - panel * (share + SPACE) for panel in range(count)]
    domains = [(max(0.0, top - share), top) for top in tops]
    for panel, domain in enumerate(domains):
        figure["layout"][_axis_name(panel)] = new_axis(look) | dict(domain=list(domain), anchor="x")
    figure["layout"]["xaxis"]["anchor"] = _axis_id(count - 1)
    return domains


def _gates(trails: Sequence[Trail], measure: str, look: Look) -> Trace:
    """A dash at the minimum that the gate asks of each cycle."""
    x: list[float | None] = []
    y: list[float | None] = []
    for index, trail in enumerate(trails):
        if (bound := trail.gate.get(measure)) is not None:
            x, y = [*x, 2 * index + 1.72, 2 * index + 2, None], [*y, bound, bound, None]
    line = dict(color=_color(measure, look), width=2.5)
    return scatter(x=x, y=y, mode="lines", line=line, name=f"{CURVES[measure][0]}, gate", hoverinfo="skip")


class _Point(NamedTuple):
    x: int
    name: str
    level: Level
    in_use: bool  # False for an end that was rolled back


def _segments(trails: Sequence[Trail], measure: str) -> Iterator[list[_Point]]:
    """The points of each cycle, from its own starting checkpoint."""
    for index, trail in enumerate(trails):
        steps = enumerate((trail.start, trail.damaged, trail.recovered), start=2 * index)
        levels = ((x, mark, mark.level(measure)) for x, mark in steps if mark is not None)
        yield [_Point(x, mark.name, level, trail.keeps(mark)) for x, mark, level in levels if level is not None]


def _curve(trails: Sequence[Trail], measure: str, look: Look) -> list[Trace]:
    """The curve of a measure. Where a cycle does not start at the end of the previous one, a dotted jump connects them.

    Jumps are not the work of training: a rejected cycle is rolled back, and new documents bring new questions.
    """
    points: list[_Point | None] = []
    jumps: list[_Point | None] = []
    for segment in filter(None, _segments(trails, measure)):
        if points and (last := points[-1]) is not None:
            if last._replace(name="") == segment[0]._replace(name=""):
                segment = segment[1:]
            else:
                jumps += [last, segment[0], None] if last.x == segment[0].x else []
                points.append(None)
        points += segment
    (name, axis), color, paper = CURVES[measure], _color(measure, look), look.palette.paper
    older, points = points[: 1 - MAX_MARKS], points[-MAX_MARKS:]  # they share a point: the line continues
    fill = [color if point is None or point.in_use else paper for point in points]
    edge = [paper if point is None or point.in_use else color for point in points]
    curve = scatter(
        **_line(points, color, width=2.5, mode="lines+markers", name=name),
        text=[point and point.name for point in points],
        customdata=[point and str(point.level) for point in points],
        error_y=_intervals(points, color),
        marker=dict(symbol=SYMBOLS[axis], size=9, color=fill, line=dict(color=edge, width=1.5)),
        hovertemplate=f"<b>%{{text}}</b><br>{name} %{{customdata}}<extra></extra>",
    )
    start = f"{name}, new start"
    jump = scatter(**_line(jumps, color, width=1.2, dash="dot", mode="lines", name=start), hoverinfo="skip")
    unmarked = scatter(
        **_line(older, color, width=2.5, mode="lines", name=f"{name}, earlier"),
        text=[point and point.name for point in older],
        customdata=[point and str(point.level) for point in older],
        hovertemplate=curve["hovertemplate"],
    )
    return [*([jump] if jumps else []), *([unmarked] if len(older) > 1 else []), curve]


def _line(points: Sequence[_Point | None], color: str, mode: str, name: str, **line: Any) -> dict[str, Any]:
    x, y = [point and point.x for point in points], [point and point.level.value for point in points]
    return dict(x=x, y=y, name=name, mode=mode, line=dict(color=color, **line))


def _intervals(points: Sequence[_Point | None], color: str) -> dict[str, Any]:
    first = len(points) - MAX_INTERVALS
    levels = [point.level if point and index >= first else None for index, point in enumerate(points)]
    above = [level.high - level.value if level and level.high is not None else None for level in levels]
    below = [level.value - level.low if level and level.low is not None else None for level in levels]
    bars = dict(type="data", symmetric=False, array=above, arrayminus=below)
    return bars | dict(color=color, thickness=1.2, width=3)


def _stages(trails: Sequence[Trail]) -> Iterator[tuple[int, Axis, str]]:
    """The left edge, the score to improve, and the name of each stage that was measured."""
    for index, trail in enumerate(trails):
        if trail.damaged is not None:
            yield 2 * index, "knowledge", "mid-training"
        if trail.recovered is not None:
            yield 2 * index + 1, "behaviour", "distillation"


def _spans(trails: Sequence[Trail], axis: Axis, look: Look, top: float) -> Trace:
    """A tint behind the stages of one kind, all in one trace: a browser takes seconds for 400 shapes."""
    x: list[float | None] = []
    y: list[float | None] = []
    for left, target, _ in _stages(trails):
        if target == axis:
            x, y = [*x, left, left, left + 1, left + 1, None], [*y, LOW * top, HIGH * top, HIGH * top, LOW * top, None]
    red, green, blue = (int(look.palette.of(axis)[i : i + 2], 16) for i in (1, 3, 5))
    tint = f"rgba({red},{green},{blue},{0.13 if look.dark else 0.09})"
    fill = dict(mode="lines", line=dict(width=0), fill="toself", fillcolor=tint, hoverinfo="skip")
    return scatter(x=x, y=y, name=f"{NAMES[axis]}, stages", **fill)


def _span_labels(trails: Sequence[Trail], look: Look) -> Iterator[dict[str, Any]]:
    """The name above each tint, while it fits."""
    for left, axis, name in _stages(trails) if _all_labelled(trails, look) and not look.narrow else ():
        position = dict(x=left + 0.5, y=1, yref="paper", yanchor="bottom", showarrow=False)
        yield position | dict(text=name, font=dict(color=look.palette.of(axis), size=11))


def _all_labelled(trails: Sequence[Trail], look: Look) -> bool:
    return len(trails) <= (1 if look.narrow else 3)


def _max_cycles(look: Look) -> int:
    """How many cycles fit so that each can be read."""
    return 5 if look.narrow else 10


def _ticks(trails: Sequence[Trail], look: Look) -> dict[str, Any]:
    """A label for every checkpoint while they fit, else for every cycle or every other one."""
    if _all_labelled(trails, look):
        positions, labels = [0], [_start_label(trails[0]) if trails else "clean"]
        for index, trail in enumerate(trails):
            later = trails[index + 1 : index + 2]
            marks = [("mid-trained", trail.damaged), (end_name(trail.status), trail.recovered)]
            middle, end = (f"{name if mark else '…'}<br>cycle {trail.number}" for name, mark in marks)
            positions += [2 * index + 1, 2 * index + 2]
            labels += [middle, end if trail.recovered or not later else _start_label(later[0])]
        return dict(tickvals=positions, ticktext=labels)
    step = 2 if len(trails) > (3 if look.narrow else 8) else 1
    chosen = range((len(trails) - 1) % step, len(trails), step)
    return dict(tickvals=[2 * i + 1 for i in chosen], ticktext=[f"cycle {trails[i].number}" for i in chosen])


def _start_label(trail: Trail) -> str:
    first, _, rest = trail.start.name.partition(" ")
    return f"{first}<br>{rest or ' '}"


def _end_labels(
    trails: Sequence[Trail], measures: Sequence[str], look: Look, panel: int, domain: tuple[float, float], top: float
) -> Iterator[dict[str, Any]]:
    """Each curve's name and last value beside its end, moved apart where they would overlap; on a phone above."""
    ends = [(measure, [point for segment in _segments(trails, measure) for point in segment]) for measure in measures]
    last = sorted(((points[-1], measure) for measure, points in ends if points), key=lambda end: -end[0].level.value)
    heights, gap = [point.level.value for point, _ in last], 0.08 * top / (domain[1] - domain[0])
    if len(last) == 2 and heights[0] - heights[1] < gap:
        middle = min(sum(heights) / 2, 1.08 * top - gap)
        heights = [middle + gap / 2, middle - gap / 2]
    right = max((mark.x for axis in NAMES for segment in _segments(trails, axis) for mark in segment), default=0)
    for (point, measure), y in zip(last, heights, strict=True):
        label: dict[str, Any] = dict(x=right, y=y, yref=_axis_id(panel), xanchor="left", xshift=12)
        if look.narrow:
            side = "left" if measure == measures[0] else "right"
            label = dict(
                x=int(side == "right"), y=domain[1], xref="paper", yref="paper", xanchor=side, yanchor="bottom"
            )
        font = dict(color=_color(measure, look), size=10 if look.narrow else 13)
        label |= dict(showarrow=False, font=font, bgcolor=look.palette.paper)
        yield label | dict(text=f"<b>{CURVES[measure][0]}</b> {point.level.value:.3f}")


def plane(trails: Sequence[Trail], clean: Mark | None, look: Look = WIDE_LIGHT) -> Figure:
    """Mid-training leads a cycle to the lower right; distillation should lead it to the upper right. One panel for each
    measure that must not be lost, where it was made."""
    panels = [axis for axis in KEPT if any(len(_points(trail, axis)) > 1 for trail in trails)] or [KEPT[0]]
    height = {1: (330, 400), 2: (480, 520), 3: (620, 640)}[len(panels)][not look.narrow]
    figure = blank(look, height, dict(l=50, r=12, t=10, b=48))
    _add_panels(figure, len(panels), look)
    layout = figure["layout"]
    layout["shapes"] = []
    for panel, axis in enumerate(panels):
        drawn = [trail for trail in trails if len(_points(trail, axis)) > 1][-MAX_TRAILS:]
        traces = [trace for trail in drawn for trace in _trail(trail, axis, trail is drawn[-1], look)]
        figure["data"] += [trace | dict(yaxis=_axis_id(panel)) for trace in traces]
        layout["shapes"] += [*clean_line(clean, axis, look, panel), *_goal(trails, axis, look, panel)]
        title = axis_title(f"{NAMES[axis]} →", look)
        layout[_axis_name(panel)] |= dict(range=[-0.04, 1.12], title=title, **SCORE_AXIS)
    layout["xaxis"] |= dict(range=[-0.06, 1.12], title=axis_title("New knowledge →", look), **SCORE_AXIS)
    return figure


def _goal(trails: Sequence[Trail], axis: Axis, look: Look, panel: int) -> Iterator[dict[str, Any]]:
    """The region that the gate asks of the latest judged cycle."""
    gates = [trail.gate for trail in trails if "knowledge" in trail.gate and axis in trail.gate]
    for gate in gates[-1:]:
        corner = dict(type="rect", x0=gate["knowledge"], x1=1.12, y0=gate[axis], y1=1.12, yref=_axis_id(panel))
        fill = dict(fillcolor=look.palette.promoted, opacity=0.16 if look.dark else 0.12, line=dict(width=0))
        yield corner | fill | dict(layer="below")


def _points(trail: Trail, axis: Axis) -> list[tuple[Mark, float, float]]:
    levels = [(mark, mark.level("knowledge"), mark.level(axis)) for mark in trail.marks]
    return [(mark, known.value, kept.value) for mark, known, kept in levels if known and kept]


def _trail(trail: Trail, axis: Axis, latest: bool, look: Look) -> list[Trace]:
    """One cycle's arrows and dots. Only the latest is in full strength and labelled; the others on hovering."""
    points, palette = _points(trail, axis), look.palette
    traces = []
    moves = [(start, end) for start, end in pairwise(points) if start[1:] != end[1:]]  # nothing may have been distilled
    for start, end in moves:
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
        customdata=[[str(mark.level(axis)), str(mark.level("knowledge"))] for mark, _, _ in points],
        marker=dict(size=10 if latest else 7, color=fill, line=dict(color=ink, width=1.5)),
        mode="markers+text" if latest and axis == KEPT[0] else "markers",
        name=f"cycle {trail.number}",
        opacity=1 if latest else 0.55,
        hovertemplate=f"<b>%{{text}}</b><br>{NAMES[axis]} %{{customdata[0]}}<br>New knowledge %{{customdata[1]}}",
        hoverlabel=dict(namelength=0),
        textposition=[f"{'bottom' if low else 'top'} {side}" for low, side in zip(below, sides, strict=True)],
        textfont=dict(color=ink, size=12),
    )
    if latest and axis == KEPT[0]:
        repeated = f"cycle {trail.number}" if look.narrow else ""
        dots["texttemplate"] = [mark.name.replace(repeated, "").strip() for mark, _, _ in points]
    return [*traces, dots]
