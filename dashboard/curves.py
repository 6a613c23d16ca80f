"""Curves of one run or several, made from data alone: every quantity in a panel of its own, on one scale of steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts import FONT, Axis, Look, blank

Steps = Sequence[tuple[int, float]]
MOST = 400
"""Points drawn of one curve: more than a panel has columns tell nothing more."""

PANELS = {
    "loss": ("Loss", "What the optimiser lowers: cross-entropy in mid-training, the divergence in distillation."),
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
    "tokens_per_second": ("Tokens a second", "Taught tokens; in distillation the writing of the answers is included."),
}
"""The quantities worth a panel, in the order they are looked at."""


@dataclass(frozen=True)
class Run:
    """One run's numbers by name. Its colour is what it brings: mid-training knowledge, distillation behaviour."""

    name: str
    brings: Axis
    numbers: Mapping[str, Steps]


def curves(runs: Sequence[Run], look: Look, smoothing: float = 0.0, log: bool = False) -> go.Figure | None:
    """A panel for every quantity that any of the runs has told; None when they have told nothing."""
    names = [name for name in PANELS if any(_drawable(run.numbers.get(name, ()), log) for run in runs)]
    if not names:
        return None
    across = 1 if look.narrow else min(3, len(names))
    down = math.ceil(len(names) / across)
    figure = make_subplots(
        down, across, subplot_titles=[PANELS[name][0] for name in names],
        vertical_spacing=0.34 / down, horizontal_spacing=0.06,
    )  # fmt: skip
    figure.update_layout(blank(look, height=190 * down + 40).layout)
    for place, name in enumerate(names):
        row, column = place // across + 1, place % across + 1
        for run in runs:
            told = _drawable(run.numbers.get(name, ()), log)
            figure.add_traces(_curve(run, told, smoothing, look), row, column)
    figure.update_annotations(font=dict(size=13, color=look.palette.ink, family=FONT), xanchor="left")
    for place, annotation in enumerate(figure.layout.annotations):
        annotation.x = figure.layout[f"xaxis{place + 1 if place else ''}"].domain[0]
    axis = dict(gridcolor=look.palette.grid, zeroline=False, tickfont_color=look.palette.muted, fixedrange=look.narrow)
    figure.update_xaxes(**axis).update_yaxes(**axis, type="log" if log else "linear", nticks=5, exponentformat="e")
    return figure.update_layout(margin=dict(l=46, r=10, t=28, b=28))


def meanings(figure: go.Figure) -> list[tuple[str, str]]:
    """What each panel of a figure shows, in words."""
    shown = {annotation.text for annotation in figure.layout.annotations}
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
    stretch = math.ceil(2 * len(told) / most)
    kept: list[tuple[int, float]] = []
    for start in range(0, len(told), stretch):
        part = told[start : start + stretch]
        kept += sorted({min(part, key=_value), max(part, key=_value)})
    return kept


def _value(point: tuple[int, float]) -> float:
    return point[1]


def _drawable(told: Steps, log: bool) -> list[tuple[int, float]]:
    return [(step, value) for step, value in told if math.isfinite(value) and (value > 0 or not log)]


def _curve(run: Run, told: Steps, smoothing: float, look: Look) -> list[go.Scatter]:
    color, name = look.palette.of(run.brings), run.name
    if not smoothing or not told:
        return [_line(thinned(told), color, name)]
    faint = _line(thinned(told), color, name).update(opacity=0.28, hoverinfo="skip")
    return [faint, _line(thinned(smoothed(told, smoothing)), color, name)]


def _line(told: Steps, color: str, name: str) -> go.Scatter:
    # Few points are marked: a line through two of them would hide that there are no more.
    mode = "lines+markers" if len(told) <= 12 else "lines"
    line = go.Scatter(x=[step for step, _ in told], y=[value for _, value in told], mode=mode, name=name)
    line.update(line=dict(color=color, width=1.8), marker=dict(size=5, color=color))
    return line.update(hovertemplate="step %{x}: %{y:.4g}")
