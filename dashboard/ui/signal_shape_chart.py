"""The shape of the signal, made from data alone: where along a text the student and its teacher part."""

from collections.abc import Sequence

from dashboard.ui.charts import Figure, Look, Trace, axis_title, blank


def half_lies_in(divergences: Sequence[float]) -> float:
    """The smallest share of the tokens that holds half of all divergence: small means that few tokens matter."""
    whole, reached = sum(divergences), 0.0
    if whole <= 0:
        return 1.0
    for count, value in enumerate(sorted(divergences, reverse=True), start=1):
        reached += value
        if reached >= whole / 2:
            return count / len(divergences)
    return 1.0


def by_place(rollouts: Sequence[Sequence[float]], look: Look) -> Figure | None:
    """The mean divergence at every place in the text, and the highest that any rollout had there."""
    longest = max((len(told) for told in rollouts), default=0)
    if not longest:
        return None
    there = [[told[place] for told in rollouts if place < len(told)] for place in range(longest)]
    places, palette = list(range(longest)), look.palette

    def bars(of: Sequence[float], name: str, color: str, opacity: float = 1.0) -> Trace:
        marker = dict(color=color, opacity=opacity, line=dict(width=0))
        return dict(type="bar", x=places, y=of, name=name, marker=marker, hovertemplate="token %{x}: %{y:.3f}")

    figure = blank(look, 230, dict(l=50, r=12, t=12, b=44))
    figure["data"] = [
        bars([max(values) for values in there], "highest", palette.muted, 0.45),
        bars([sum(values) / len(values) for values in there], "mean", palette.behaviour),
    ]
    layout = figure["layout"]
    layout |= dict(barmode="overlay", bargap=0.1)
    layout["xaxis"] |= dict(title=axis_title("Token of the answer", look), tickformat="d")
    layout["yaxis"] |= dict(title=axis_title("KL to the teacher, nats", look), tickformat=".3~g", rangemode="tozero")
    return figure
