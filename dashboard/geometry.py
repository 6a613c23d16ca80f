"""The shape of the signal, made from data alone: where along a text the student and its teacher part."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.charts import Look, blank


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


def by_place(rollouts: Sequence[Sequence[float]], look: Look) -> go.Figure | None:
    """The mean divergence at every place in the text, and the highest that any rollout had there."""
    longest = max((len(told) for told in rollouts), default=0)
    if not longest:
        return None
    there = [[told[place] for told in rollouts if place < len(told)] for place in range(longest)]
    places, palette = list(range(longest)), look.palette
    figure = blank(look, height=230)
    highest = go.Bar(
        x=places, y=[max(values) for values in there], marker_color=palette.muted, opacity=0.45, name="highest"
    )
    mean = go.Bar(x=places, y=[sum(v) / len(v) for v in there], marker_color=palette.behaviour, name="mean")
    figure.add_traces([highest, mean]).update_traces(hovertemplate="token %{x}: %{y:.3f}", marker_line_width=0)
    figure.update_layout(barmode="overlay", bargap=0.1, margin=dict(l=50, r=12, t=12, b=44))
    title = dict(title_font=dict(size=12, color=palette.muted), title_standoff=8)
    figure.update_xaxes(title_text="Token of the answer", tickformat="d", **title)
    return figure.update_yaxes(title_text="KL to the teacher, nats", tickformat=".3~g", rangemode="tozero", **title)
