"""Curves of one run or several, made from data alone: every quantity in a panel of its own, on one scale of steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.ui.charts import FONT, Axis, Figure, Look, Trace, an_axis, blank

Steps = Sequence[tuple[int, float]]
MOST = 400
"""Points drawn of one curve: more than a panel has columns tell nothing more."""

PANELS = {
    "loss": ("Loss", "What the optimiser lowers: cross-entropy for tokens, the divergence for what a model judges."),
    "kl": (
        "KL to the teacher, nats a token",
        "How far the student's choices are from its teacher's, on what it wrote.",
    ),
    "entropy": ("Entropy, nats a token", "How undecided the student is. Near 0 it says the same thing every time."),
    "rollout_length": ("Length of rollouts, tokens", "How long the student's answers are, on average."),
    "truncated": ("Truncated share", "Answers that were cut off at the longest length allowed."),
    "ratio_mean": ("Importance ratio", "Probability now over probability when it was written; 1 is exactly on-policy."),
    "reward": ("Reward", "The mean reward of the answers."),
    "grad_norm": ("Gradient norm", "Before clipping. A spike is a step to look at."),
    "learning_rate": ("Learning rate", "As the schedule set it."),
    "density": (
        "Signal density",
        "Share of the tokens that are told something: a probability moved by a percent or more.",
    ),
    "concentration": ("Signal concentration", "Share of the whole signal that the strongest 1 % of the tokens carry."),
    "tokens_per_second": (
        "Tokens a second",
        "Taught tokens; in distillation the writing of the answers is included.",
    ),
}
"""The quantities worth a panel, in the order they are looked at."""


@dataclass(frozen=True)
class Run:
    """One run's numbers by name. Its colour is what it brings: mid-training knowledge, distillation behaviour."""

    name: str
    brings: Axis
    numbers: Mapping[str, Steps]


def curves(runs: Sequence[Run], look: Look, smoothing: float = 0.0, log: bool = False) -> Figure | None:
    """A panel for every quantity that any of the runs has told; None when they have told nothing."""
    names = [name for name in PANELS if any(_drawable(run.numbers.get(name, ()), log) for run in runs)]
    if not names:
        return None
    across = 1 if look.narrow else min(3, len(names))
    down = math.ceil(len(names) / across)
    figure = blank(look, 190 * down + 40, dict(l=46, r=10, t=28, b=28))
    scale: dict[str, Any] = dict(type="log" if log else "linear", nticks=5, exponentformat="e")
    figure["layout"]["annotations"] = []
    for place, name in enumerate(names):
        (left, right), (bottom, top) = _room(place, across, down)
        number = str(place + 1) if place else ""  # plotly calls them x, x2, x3
        figure["layout"][f"xaxis{number}"] = an_axis(look) | dict(domain=[left, right], anchor=f"y{number}")
        figure["layout"][f"yaxis{number}"] = an_axis(look) | dict(domain=[bottom, top], anchor=f"x{number}") | scale
        title = dict(text=PANELS[name][0], x=left, y=top, xref="paper", yref="paper", showarrow=False)
        words = dict(font=dict(size=13, color=look.palette.ink, family=FONT), xanchor="left", yanchor="bottom")
        figure["layout"]["annotations"].append(title | words)
        for run in runs:
            told = _drawable(run.numbers.get(name, ()), log)
            figure["data"] += [
                line | dict(xaxis=f"x{number}", yaxis=f"y{number}") for line in _curve(run, told, smoothing, look)
            ]
    return figure


def _room(place: int, across: int, down: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """From where to where a panel goes, as shares of the figure's width and height; the first row is the highest."""
    row, column = divmod(place, across)
    beside, between = 0.06, 0.34 / down
    wide, high = (1 - beside * (across - 1)) / across, (1 - between * (down - 1)) / down
    left, top = column * (wide + beside), 1 - row * (high + between)
    return (left, left + wide), (max(0.0, top - high), top)


def meanings(figure: Figure) -> list[tuple[str, str]]:
    """What each panel of a figure shows, in words."""
    shown = {annotation["text"] for annotation in figure["layout"]["annotations"]}
    return [(title, meaning) for title, meaning in PANELS.values() if title in shown]


def smoothed(told: Steps, smoothing: float) -> list[tuple[int, float]]:
    """A running mean that forgets by steps, not by points: a series told every tenth step is smoothed no harder."""
    result: list[tuple[int, float]] = []
    mean = weight = 0.0
    before = told[0][0] if told else 0
    for step, value in told:
        kept = smoothing ** (step - before) if result else 0.0
        mean, weight = mean * kept + value * (1 - smoothing), weight * kept + (1 - smoothing)
        result.append((step, mean / weight))
        before = step
    return result


def thinned(told: Steps, most: int = MOST) -> Steps:
    """At most so many points, the lowest and the highest of every stretch: a spike is never thinned away."""
    if len(told) <= most:
        return told
    stretch = math.ceil(len(told) / (most // 2))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(told), stretch):
        part = told[start : start + stretch]
        kept += sorted({min(part, key=_value), max(part, key=_value)})
    return kept


def _value(point: tuple[int, float]) -> float:
    return point[1]


def _drawable(told: Steps, log: bool) -> list[tuple[int, float]]:
    return [(step, value) for step, value in told if math.isfinite(value) and (value > 0 or not log)]


def _curve(run: Run, told: Steps, smoothing: float, look: Look) -> list[Trace]:
    color, name = look.palette.of(run.brings), run.name
    if not smoothing or not told:
        return [_line(thinned(told), color, name)]
    faint = _line(thinned(told), color, name) | dict(opacity=0.28, hoverinfo="skip")
    return [faint, _line(thinned(smoothed(told, smoothing)), color, name)]


def _line(told: Steps, color: str, name: str) -> Trace:
    # Few points are marked: a line through two of them would hide that there are no more.
    mode = "lines+markers" if len(told) <= 12 else "lines"
    points = dict(x=[step for step, _ in told], y=[value for _, value in told])
    look = dict(mode=mode, line=dict(color=color, width=1.8), marker=dict(size=5, color=color))
    return dict(type="scatter", name=name, hovertemplate="step %{x}: %{y:.4g}", **points, **look)
