"""The chart of where along a rollout the student and its teacher differ."""

from collections.abc import Sequence

from dashboard.ui.charts.figure import Figure, Look, Trace, axis_title, blank


def half_divergence_share(divergences: Sequence[float]) -> float:
    """Return the smallest share of the tokens that holds half of the divergence. Small: few tokens matter."""
    total, reached = sum(divergences), 0.0
    if total <= 0:
        return 1.0
    for count, value in enumerate(sorted(divergences, reverse=True), start=1):
        reached += value
        if reached >= total / 2:
            return count / len(divergences)
    return 1.0


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
