"""Figures made from data alone, for pages and for reports.

Nothing here knows a page, a database or a browser: numbers go in, figures as plotly's JavaScript takes them come
out, plain dictionaries (plotly's own Python classes check every value again, which took half of a page's time; the
tests have them check). One colour means
one thing everywhere: blue is instruction following (and distillation, which brings it back), orange is knowledge
(and mid-training, which brings that in). The pair stays apart under the common colour blindnesses, and shape
says it a second time: circles follow instructions, diamonds know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypedDict

Axis = Literal["behaviour", "knowledge"]
Trace = dict[str, Any]
NAMES: dict[Axis, str] = {"behaviour": "Instruction following", "knowledge": "Knowledge"}
SYMBOLS: dict[Axis, str] = {"behaviour": "circle", "knowledge": "diamond"}
FONT = "'IBM Plex Sans', system-ui, -apple-system, 'Segoe UI', sans-serif"
TRAILS_IN_PLANE = 8
"""Older trails would bury the recent ones; the chart over time keeps them all."""


LOW, HIGH = -0.04, 1.08
"""The ends of the scale of scores, with room for a mark at 0 and at 1."""
MARKED = 80
"""Points with marks, the last ones: a browser draws each by itself, and a long history shows them only as a smear."""
INTERVALS = 40
"""Points with intervals, the last ones: further back they would be a hatching, and cost a browser its time."""


NOT_PROMOTED = ("rejected", "inconclusive")


@dataclass(frozen=True)
class Palette:
    behaviour: str
    knowledge: str
    ink: str
    muted: str
    grid: str
    paper: str
    promoted: str
    rejected: str
    inconclusive: str

    def of(self, axis: Axis) -> str:
        return self.behaviour if axis == "behaviour" else self.knowledge


LIGHT = Palette("#0067b1", "#b85c00", "#1c2430", "#5b6675", "#e4e8ee", "#ffffff", "#1a7f4b", "#b3261e", "#6b3fc0")
DARK = Palette("#63b3f0", "#f0a33c", "#e8ecf2", "#9aa6b5", "#2a323d", "#151a21", "#57c48b", "#ff8a80", "#bda2f5")


@dataclass(frozen=True)
class Look:
    """What the figure will be seen on."""

    dark: bool = False
    narrow: bool = False

    @property
    def palette(self) -> Palette:
        return DARK if self.dark else LIGHT


class Figure(TypedDict):
    data: list[Trace]
    layout: dict[str, Any]


@dataclass(frozen=True)
class Level:
    """A score and its 95 % interval, where one is known."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" (95 %: {self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True)
class Mark:
    """One measured checkpoint."""

    name: str
    behaviour: Level | None = None
    knowledge: Level | None = None

    def level(self, axis: Axis) -> Level | None:
        return self.behaviour if axis == "behaviour" else self.knowledge


@dataclass(frozen=True)
class Trail:
    """One cycle's way: where it started, what mid-training made of it, what distillation brought back."""

    number: int
    status: str
    start: Mark
    damaged: Mark | None = None
    recovered: Mark | None = None
    gate: Mapping[Axis, float] = field(default_factory=dict)
    """What the cycle had to reach to be promoted."""

    def keeps(self, mark: Mark) -> bool:
        """Whether the mark stands: what a cycle ended with that was not promoted is rolled back."""
        return not (self.status in NOT_PROMOTED and mark is self.recovered)


def ending(status: str) -> str:
    """What to call the checkpoint that a cycle ended with."""
    return status if status in NOT_PROMOTED else "recovered"


def over_time(trails: Sequence[Trail], clean: Mark | None, look: Look = Look()) -> Figure:
    """Both curves across all cycles, two steps a cycle: mid-training, then distillation.

    Steps are evenly spaced. On a clock, minutes of training would vanish between the months that part two cycles.
    """
    named = _all_named(trails, look)
    figure = blank(
        look, 300 if look.narrow else 400, dict(l=32, r=12 if look.narrow else 172, t=26, b=44 if named else 28)
    )
    figure["data"] = [_spans(trails, axis, look) for axis in NAMES]
    figure["data"] += [trace for axis in NAMES for trace in (_gates(trails, axis, look), *_curve(trails, axis, look))]
    layout = figure["layout"]
    layout["shapes"] = [line for axis in NAMES for line in _clean_line(clean, axis, look)]
    layout["annotations"] = [*_span_names(trails, look), *_end_names(trails, look)]
    # A long history opens at its end: forty teeth of a saw tell nobody anything. A double click shows it whole.
    first = 2 * max(0, len(trails) - _most(look))
    layout["xaxis"] |= dict(range=[first - 0.25, 2 * len(trails) + 0.25], showgrid=False, **_ticks(trails, look))
    layout["yaxis"] |= dict(range=[LOW, HIGH], **_SCALE)
    return figure


def plane(trails: Sequence[Trail], clean: Mark | None, look: Look = Look()) -> Figure:
    """Knowledge against behaviour: a cycle leaves to the lower right and should come back to the upper right."""
    figure = blank(look, 330 if look.narrow else 400, dict(l=50, r=12, t=10, b=48))
    shown = [trail for trail in trails if len(_placed(trail)) > 1][-TRAILS_IN_PLANE:]
    figure["data"] = [trace for trail in shown for trace in _trail(trail, trail is shown[-1], look)]
    layout = figure["layout"]
    layout["shapes"] = [*_clean_line(clean, "behaviour", look), *_goal(trails, look)]
    layout["xaxis"] |= dict(range=[-0.06, 1.12], title=axis_title("Knowledge of the documents →", look), **_SCALE)
    layout["yaxis"] |= dict(range=[-0.04, 1.12], title=axis_title("Instruction following →", look), **_SCALE)
    return figure


_SCALE = dict(tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1], tickformat=".1f")


def blank(look: Look, height: int, margin: Mapping[str, int]) -> Figure:
    """A figure with nothing in it yet, and one pair of axes."""
    palette, clear = look.palette, "rgba(0,0,0,0)"
    layout: dict[str, Any] = dict(
        height=height, margin=margin, showlegend=False, paper_bgcolor=clear, plot_bgcolor=clear
    )
    layout["font"] = dict(family=FONT, size=12, color=palette.ink)
    layout["hoverlabel"] = dict(bgcolor=palette.paper, bordercolor=palette.muted, font=dict(color=palette.ink))
    layout["modebar"] = dict(bgcolor=clear, color=palette.muted, activecolor=palette.ink)
    # A thumb that scrolls past must not zoom, and a refresh keeps what the reader zoomed to.
    layout |= dict(dragmode=False if look.narrow else "zoom", uirevision="keep")
    return Figure(data=[], layout=layout | dict(xaxis=an_axis(look), yaxis=an_axis(look)))


def an_axis(look: Look) -> dict[str, Any]:
    own = dict(tickfont=dict(color=look.palette.muted), tickangle=0, fixedrange=look.narrow)
    return dict(gridcolor=look.palette.grid, zeroline=False) | own


def axis_title(words: str, look: Look) -> dict[str, Any]:
    return dict(text=words, font=dict(size=12, color=look.palette.muted), standoff=8)


def _scatter(**said: Any) -> Trace:
    return dict(type="scatter", **said)


def _clean_line(clean: Mark | None, axis: Axis, look: Look) -> Iterator[dict[str, Any]]:
    if clean is not None and (level := clean.level(axis)) is not None:
        place = dict(type="line", xref="paper", x0=0, x1=1, y0=level.value, y1=level.value)
        yield place | dict(line=dict(color=look.palette.of(axis), width=1, dash="dot"), opacity=0.75)


def _gates(trails: Sequence[Trail], axis: Axis, look: Look) -> Trace:
    """A dash where each cycle had to end, at the least."""
    x: list[float | None] = []
    y: list[float | None] = []
    for index, trail in enumerate(trails):
        if (bound := trail.gate.get(axis)) is not None:
            x, y = [*x, 2 * index + 1.72, 2 * index + 2, None], [*y, bound, bound, None]
    line = dict(color=look.palette.of(axis), width=2.5)
    return _scatter(x=x, y=y, mode="lines", line=line, name=f"{NAMES[axis]}, gate", hoverinfo="skip")


def _goal(trails: Sequence[Trail], look: Look) -> Iterator[dict[str, Any]]:
    """The corner that the latest cycle had to come back to."""
    told = [trail.gate for trail in trails if len(trail.gate) == len(NAMES)]
    for gate in told[-1:]:
        corner = dict(type="rect", x0=gate["knowledge"], x1=1.12, y0=gate["behaviour"], y1=1.12, layer="below")
        yield corner | dict(fillcolor=look.palette.promoted, opacity=0.16 if look.dark else 0.12, line=dict(width=0))


class _Point(NamedTuple):
    at: int
    name: str
    level: Level
    kept: bool


def _runs(trails: Sequence[Trail], axis: Axis) -> Iterator[list[_Point]]:
    """One run of points a cycle; it begins at the cycle's own starting point."""
    for index, trail in enumerate(trails):
        steps = enumerate((trail.start, trail.damaged, trail.recovered), start=2 * index)
        levels = ((at, mark, mark.level(axis)) for at, mark in steps if mark is not None)
        yield [_Point(at, mark.name, level, trail.keeps(mark)) for at, mark, level in levels if level is not None]


def _curve(trails: Sequence[Trail], axis: Axis, look: Look) -> list[Trace]:
    """The curve, broken where a cycle starts elsewhere than the last one ended, and the dotted jumps between.

    A rejected cycle is rolled back and new documents bring new questions: neither is something training did.
    """
    points: list[_Point | None] = []
    jumps: list[_Point | None] = []
    for run in filter(None, _runs(trails, axis)):
        if points and (last := points[-1]) is not None:
            if (last.at, last.level, last.kept) == (run[0].at, run[0].level, run[0].kept):
                run = run[1:]
            else:
                jumps += [last, run[0], None] if last.at == run[0].at else []
                points.append(None)
        points += run
    color, paper = look.palette.of(axis), look.palette.paper
    older, points = points[: 1 - MARKED], points[-MARKED:]  # they share a point, so that the line goes on
    fill = [color if point is None or point.kept else paper for point in points]
    edge = [paper if point is None or point.kept else color for point in points]
    curve = _scatter(
        **_line(points, color, width=2.5, mode="lines+markers", name=NAMES[axis]),
        text=[point and point.name for point in points],
        customdata=[point and str(point.level) for point in points],
        error_y=_intervals(points, color),
        marker=dict(symbol=SYMBOLS[axis], size=9, color=fill, line=dict(color=edge, width=1.5)),
        hovertemplate=f"<b>%{{text}}</b><br>{NAMES[axis]} %{{customdata}}<extra></extra>",
    )
    name = f"{NAMES[axis]}, new start"
    jump = _scatter(**_line(jumps, color, width=1.2, dash="dot", mode="lines", name=name), hoverinfo="skip")
    before = _scatter(
        **_line(older, color, width=2.5, mode="lines", name=f"{NAMES[axis]}, earlier"),
        text=[point and point.name for point in older],
        customdata=[point and str(point.level) for point in older],
        hovertemplate=curve["hovertemplate"],
    )
    return [*([jump] if jumps else []), *([before] if len(older) > 1 else []), curve]


def _line(points: Sequence[_Point | None], color: str, mode: str, name: str, **line: Any) -> dict[str, Any]:
    x, y = [point and point.at for point in points], [point and point.level.value for point in points]
    return dict(x=x, y=y, name=name, mode=mode, line=dict(color=color, **line))


def _intervals(points: Sequence[_Point | None], color: str) -> dict[str, Any]:
    above: list[float | None] = []
    below: list[float | None] = []
    first = len(points) - INTERVALS
    for place, point in enumerate(points):
        value, low, high = (point.level.value, point.level.low, point.level.high) if point else (0, None, None)
        if place < first:
            low = high = None
        above.append(None if high is None else high - value)
        below.append(None if low is None else value - low)
    bars = dict(type="data", symmetric=False, array=above, arrayminus=below)
    return bars | dict(color=color, thickness=1.2, width=3)


def _stages(trails: Sequence[Trail]) -> Iterator[tuple[int, Axis, str]]:
    """Where each stage that has happened begins, what it is to bring, and its name."""
    for index, trail in enumerate(trails):
        if trail.damaged is not None:
            yield 2 * index, "knowledge", "mid-training"
        if trail.recovered is not None:
            yield 2 * index + 1, "behaviour", "distillation"


def _spans(trails: Sequence[Trail], axis: Axis, look: Look) -> Trace:
    """A tint behind every stage that brings this, all in one trace: a browser takes seconds for 400 shapes."""
    x: list[float | None] = []
    y: list[float | None] = []
    for left, brings, _ in _stages(trails):
        if brings == axis:
            x, y = [*x, left, left, left + 1, left + 1, None], [*y, LOW, HIGH, HIGH, LOW, None]
    red, green, blue = (int(look.palette.of(axis)[place : place + 2], 16) for place in (1, 3, 5))
    tint = f"rgba({red},{green},{blue},{0.13 if look.dark else 0.09})"
    drawn = dict(mode="lines", line=dict(width=0), fill="toself", fillcolor=tint, hoverinfo="skip")
    return _scatter(x=x, y=y, name=f"{NAMES[axis]}, stages", **drawn)


def _span_names(trails: Sequence[Trail], look: Look) -> Iterator[dict[str, Any]]:
    """The name above each tint, while there is room for the words."""
    for left, axis, name in _stages(trails) if _all_named(trails, look) and not look.narrow else ():
        place = dict(x=left + 0.5, y=1, yref="paper", yanchor="bottom", showarrow=False)
        yield place | dict(text=name, font=dict(color=look.palette.of(axis), size=11))


def _all_named(trails: Sequence[Trail], look: Look) -> bool:
    return len(trails) <= (1 if look.narrow else 3)


def _most(look: Look) -> int:
    """How many cycles can be told apart at a glance."""
    return 5 if look.narrow else 10


def _ticks(trails: Sequence[Trail], look: Look) -> dict[str, Any]:
    """Every checkpoint named while the names fit; after that every cycle, or every other one."""
    if _all_named(trails, look):
        first, _, of = trails[0].start.name.partition(" ") if trails else ("clean", "", "")
        at, words = [0], [f"{first}<br>{of or ' '}"]
        for index, trail in enumerate(trails):
            named = [("mid-trained", trail.damaged), (ending(trail.status), trail.recovered)]
            at += [2 * index + 1, 2 * index + 2]
            words += [f"{word if mark else '…'}<br>cycle {trail.number}" for word, mark in named]
        return dict(tickvals=at, ticktext=words)
    every = 2 if len(trails) > (3 if look.narrow else 8) else 1
    chosen = range((len(trails) - 1) % every, len(trails), every)
    return dict(tickvals=[2 * i + 1 for i in chosen], ticktext=[f"cycle {trails[i].number}" for i in chosen])


def _end_names(trails: Sequence[Trail], look: Look) -> Iterator[dict[str, Any]]:
    """Each curve's name and last value beside its end, pushed apart where the ends meet; on a phone, above."""
    ends = [(axis, [point for run in _runs(trails, axis) for point in run]) for axis in NAMES]
    last = sorted(((points[-1], axis) for axis, points in ends if points), key=lambda end: -end[0].level.value)
    heights, gap = [point.level.value for point, _ in last], 0.11
    if len(last) == 2 and heights[0] - heights[1] < gap:
        middle = min(sum(heights) / 2, 1.08 - gap)
        heights = [middle + gap / 2, middle - gap / 2]
    for (point, axis), y in zip(last, heights, strict=True):
        place: dict[str, Any] = dict(x=point.at, y=y, xanchor="left", xshift=12)
        if look.narrow:
            side = "left" if axis == "behaviour" else "right"
            place = dict(x=int(side == "right"), y=1, xref="paper", yref="paper", xanchor=side, yanchor="bottom")
        place |= dict(showarrow=False, font=dict(color=look.palette.of(axis), size=13), bgcolor=look.palette.paper)
        yield place | dict(text=f"<b>{NAMES[axis]}</b> {point.level.value:.3f}")


def _placed(trail: Trail) -> list[tuple[Mark, float, float]]:
    marks = (mark for mark in (trail.start, trail.damaged, trail.recovered) if mark is not None)
    return [(m, m.knowledge.value, m.behaviour.value) for m in marks if m.knowledge and m.behaviour]


def _trail(trail: Trail, latest: bool, look: Look) -> list[Trace]:
    """One cycle's arrows and dots; only the latest is in full strength and named, the rest tell by hovering."""
    points, palette = _placed(trail), look.palette
    traces = []
    for begin, end in pairwise(points):
        learning = end[0] is trail.damaged
        color = palette.knowledge if learning else palette.behaviour
        size = [0, 13 if latest else 9]
        head = dict(
            symbol="arrow", size=size, angleref="previous", standoff=7, color=color, opacity=1, line=dict(width=0)
        )
        arrow = _scatter(
            x=[begin[1], end[1]], y=[begin[2], end[2]], mode="lines+markers", hoverinfo="skip", marker=head
        )
        arrow |= dict(line=dict(color=color, width=2.5 if latest else 1.5), opacity=1 if latest else 0.35)
        traces.append(arrow | dict(name=f"cycle {trail.number}: {'mid-training' if learning else 'distillation'}"))
    ink = palette.ink if latest else palette.muted
    fill = [ink if trail.keeps(mark) else palette.paper for mark, _, _ in points]
    down = [mark is trail.damaged for mark, _, _ in points]
    sides = ["left" if x > 0.5 else "right" for _, x, _ in points]
    dots = _scatter(
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
        textposition=[f"{'bottom' if d else 'top'} {side}" for d, side in zip(down, sides, strict=True)],
        textfont=dict(color=ink, size=12),
    )
    if latest:
        here = f"cycle {trail.number}" if look.narrow else ""
        dots["texttemplate"] = [mark.name.replace(here, "").strip() for mark, _, _ in points]
    return [*traces, dots]
