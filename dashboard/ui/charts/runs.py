"""The charts of runs: training curves by optimiser step, and where along a rollout student and teacher differ."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any

from dashboard.ui.charts.figure import FONT, Axis, Figure, Look, Trace, axis_title, blank, new_axis, scatter

Series = Sequence[tuple[int, float]]  # (step, value) pairs
MAX_POINTS = 400  # of one curve: a panel has no more columns to show them

PANELS = {  # title and explanation of each quantity, in the order of the panels
    "loss": ("Loss", "What the optimiser minimises: cross-entropy on tokens, or the divergence from the teacher."),
    "kl": ("KL to the teacher, nats a token", "Divergence between student and teacher on the student's rollouts."),
    "entropy": ("Entropy, nats a token", "Entropy of the student's predictions. Near 0 its rollouts are all the same."),
    "rollout_length": ("Length of rollouts, tokens", "Mean length of the student's rollouts."),
    "truncated": ("Truncated share", "Share of the rollouts that reached the maximum length."),
    "stop_student": ("Student ends", "Probability that the student ends its reply, mean over the tokens compared."),
    "stop_teacher": ("Teacher ends", "The same of the teacher. The student should not stay far below it."),
    "repetition": ("Repetition", "Share of the rollouts' pieces of 8 tokens that occurred before in the same rollout."),
    "ratio_mean": ("Importance ratio", "Token probability now over that at sampling time; 1 is exactly on-policy."),
    "reward": ("Reward", "Mean reward of the rollouts."),
    "grad_norm": ("Gradient norm", "Before clipping. Look at the steps with a spike."),
    "learning_rate": ("Learning rate", "As set by the schedule."),
    "density": ("Signal density", "Share of the tokens whose probability the signal moves by one percent or more."),
    "concentration": ("Signal concentration", "Share of the whole signal in the strongest 1 % of the tokens."),
    "forgetting/kl_instructions": ("KL from clean, instructions", "On ready-made answers, for a watched training."),
    "forgetting/instructions": ("Instructions followed", "Change of their share from the clean model."),
    "tokens_per_second": ("Tokens a second", "Trained tokens per second, in distillation including generation."),
}


@dataclass(frozen=True)
class RunCurves:
    name: str
    target: Axis  # sets the colour: mid-training adds knowledge, distillation recovers behaviour
    metrics: Mapping[str, Series]


def curves(runs: Sequence[RunCurves], look: Look, smoothing: float = 0.0, log: bool = False) -> Figure | None:
    """Draw a panel for every quantity that any run has logged. Return None if there is none."""
    names = [name for name in PANELS if any(_drawable(run.metrics.get(name, ()), log) for run in runs)]
    if not names:
        return None
    columns = 1 if look.narrow else min(3, len(names))
    rows = math.ceil(len(names) / columns)
    figure = blank(look, 190 * rows + 40, dict(l=46, r=10, t=28, b=28))
    scale: dict[str, Any] = dict(type="log" if log else "linear", nticks=5, exponentformat="e")
    figure["layout"]["annotations"] = []
    for index, name in enumerate(names):
        (left, right), (bottom, top) = _domain(index, columns, rows)
        number = str(index + 1) if index else ""  # plotly names the axes x, x2, x3
        figure["layout"][f"xaxis{number}"] = new_axis(look) | dict(domain=[left, right], anchor=f"y{number}")
        figure["layout"][f"yaxis{number}"] = new_axis(look) | dict(domain=[bottom, top], anchor=f"x{number}") | scale
        title = dict(text=PANELS[name][0], x=left, y=top, xref="paper", yref="paper", showarrow=False)
        font = dict(font=dict(size=13, color=look.palette.ink, family=FONT), xanchor="left", yanchor="bottom")
        figure["layout"]["annotations"].append(title | font)
        for run in runs:
            series = _drawable(run.metrics.get(name, ()), log)
            figure["data"] += [
                line | dict(xaxis=f"x{number}", yaxis=f"y{number}") for line in _curve(run, series, smoothing, look)
            ]
    return figure


def _domain(index: int, columns: int, rows: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """A panel's extent in x and in y, as shares of the figure; the first row is at the top."""
    row, column = divmod(index, columns)
    x_gap, y_gap = 0.06, 0.34 / rows
    width, height = (1 - x_gap * (columns - 1)) / columns, (1 - y_gap * (rows - 1)) / rows
    left, top = column * (width + x_gap), 1 - row * (height + y_gap)
    return (left, left + width), (max(0.0, top - height), top)


def meanings(figure: Figure) -> list[tuple[str, str]]:
    """The title and the explanation of each panel in a figure."""
    titles = {annotation["text"] for annotation in figure["layout"]["annotations"]}
    return [(title, meaning) for title, meaning in PANELS.values() if title in titles]


def smooth(series: Series, smoothing: float) -> list[tuple[int, float]]:
    """Return an exponential moving average that decays by steps, not by points.

    A series logged every tenth step is smoothed no more than one logged at every step.
    """
    result: list[tuple[int, float]] = []
    mean = weight = 0.0
    previous = series[0][0] if series else 0
    for step, value in series:
        decay = smoothing ** (step - previous) if result else 0.0
        mean, weight = mean * decay + value * (1 - smoothing), weight * decay + (1 - smoothing)
        result.append((step, mean / weight))
        previous = step
    return result


def downsample(series: Series, max_points: int = MAX_POINTS) -> Series:
    """Keep the minimum and the maximum of each bucket, so that no spike is lost."""
    if len(series) <= max_points:
        return series
    size = math.ceil(len(series) / (max_points // 2))
    points: list[tuple[int, float]] = []
    for start in range(0, len(series), size):
        bucket = series[start : start + size]
        points += sorted({min(bucket, key=itemgetter(1)), max(bucket, key=itemgetter(1))})
    return points


def _drawable(series: Series, log: bool) -> list[tuple[int, float]]:
    return [(step, value) for step, value in series if math.isfinite(value) and (value > 0 or not log)]


def _curve(run: RunCurves, series: Series, smoothing: float, look: Look) -> list[Trace]:
    color, name = look.palette.of(run.target), run.name
    if not smoothing or not series:
        return [_line(downsample(series), color, name)]
    faint = _line(downsample(series), color, name) | dict(opacity=0.28, hoverinfo="skip")
    return [faint, _line(downsample(smooth(series, smoothing)), color, name)]


def _line(series: Series, color: str, name: str) -> Trace:
    # A line alone would hide that a short series has only a few points.
    mode = "lines+markers" if len(series) <= 12 else "lines"
    points = dict(x=[step for step, _ in series], y=[value for _, value in series])
    style = dict(mode=mode, line=dict(color=color, width=1.8), marker=dict(size=5, color=color))
    return scatter(name=name, hovertemplate="step %{x}: %{y:.4g}", **points, **style)


def half_divergence_share(divergences: Sequence[float]) -> float:
    """Return the smallest share of the tokens that holds half of the divergence. Small: few tokens matter."""
    if sum(divergences) <= 0:
        return 1.0
    reached = list(accumulate(sorted(divergences, reverse=True)))
    count = next((count for count, value in enumerate(reached, start=1) if value >= reached[-1] / 2), len(reached))
    return count / len(reached)


def divergence_by_position(rollouts: Sequence[Sequence[float]], look: Look) -> Figure | None:
    """Draw the mean and the highest divergence at each token position. Return None without tokens."""
    longest = max((len(divergences) for divergences in rollouts), default=0)
    if not longest:
        return None
    columns = [[values[position] for values in rollouts if position < len(values)] for position in range(longest)]
    positions, palette = list(range(longest)), look.palette

    def bars(heights: Sequence[float], name: str, color: str, opacity: float = 1.0) -> Trace:
        marker = dict(color=color, opacity=opacity, line=dict(width=0))
        return dict(type="bar", x=positions, y=heights, name=name, marker=marker, hovertemplate="token %{x}: %{y:.3f}")

    figure = blank(look, 230, dict(l=50, r=12, t=12, b=44))
    figure["data"] = [
        bars([max(values) for values in columns], "highest", palette.muted, 0.45),
        bars([sum(values) / len(values) for values in columns], "mean", palette.behaviour),
    ]
    layout = figure["layout"]
    layout |= dict(barmode="overlay", bargap=0.1)
    layout["xaxis"] |= dict(title=axis_title("Token of the answer", look), tickformat="d")
    layout["yaxis"] |= dict(title=axis_title("KL to the teacher, nats", look), tickformat=".3~g", rangemode="tozero")
    return figure
