"""The student's rollouts, each token tinted by its divergence from the teacher."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from dashboard.ui.charts.runs import divergence_by_position, half_divergence_share
from dashboard.ui.html import card, chart_card, choice, form, link, links, load, nothing, page_title, percent
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll, project_version
from db.tables import Rollout, Run

MAX_TOKENS = 800  # of one rollout
MAX_CHOICES = 5  # of each model, for one token
_VISIBLE = str.maketrans("\n ", "↵␣")
_html = load("rollouts.html")


class Token(NamedTuple):
    text: str
    divergence: float
    student: list[tuple[str, float]]
    teacher: list[tuple[str, float]]

    @property
    def tint(self) -> float:
        return round(math.sqrt(min(1.0, max(0.0, self.divergence / 2))), 2)


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    parts = [gr.HTML(), gr.HTML(elem_id="geometry"), gr.HTML(elem_id="rollouts")]
    poll(app, dashboard, "tokens", parts, render, version)


def version(request: PageRequest) -> Any:
    return project_version(request), [request.reader.last_rollout(run.id) for run in request.running]


def render(request: PageRequest) -> list[Any]:
    runs = request.reader.runs_with_rollouts(request.project.id)
    if not runs:
        text = "Distillation stores some of the student's rollouts:"
        raise NotFound("No rollouts yet", text, ["recover distill --teacher base"])
    run = next((candidate for candidate in runs if candidate.id == request.number("run")), runs[0])
    steps = request.reader.rollout_steps(run.id)
    step = request.number("step") if request.number("step") in steps else steps[-1]
    rollouts = request.reader.rollouts(run.id, step)
    tokens = [tokens_of(rollout) for rollout in rollouts]
    divergences = [[token.divergence for token in its] for its in tokens if its]
    figure = divergence_by_position(divergences, request.look)
    return [
        _head(runs, run, steps, step) + _summary(divergences),
        chart_card("divergence", figure) if figure else None,
        card(
            f"Rollouts of step {step}",
            _html.rollouts(list(zip(rollouts, tokens, strict=True)), MAX_TOKENS),
            "Hover over a token or focus it to see the most likely tokens of both models.",
        ),
    ]


def tokens_of(rollout: Rollout) -> list[Token]:
    """The stored tokens of the expected shape; others are left out, since a record may come from anywhere."""
    tokens = []
    for entry in rollout.tokens if isinstance(rollout.tokens, list) else ():
        match entry:
            case [str(text), int() | float() | None as divergence, list(student), list(teacher)]:
                tokens.append(Token(text, float(divergence or 0), _choices(student), _choices(teacher)))
    return tokens


def _choices(entries: Sequence[Any]) -> list[tuple[str, float]]:
    """The first choices, with white space made visible."""
    choices = []
    for entry in entries:
        match entry:
            case [text, int() | float() as probability]:
                choices.append((str(text).translate(_VISIBLE)[:40], float(probability)))
    return choices[:MAX_CHOICES]


def _head(runs: Sequence[Run], run: Run, steps: Sequence[int], step: int | None) -> Markup:
    options = [(str(other.id), f"run {other.id}" + (f", cycle {other.cycle}" if other.cycle else "")) for other in runs]
    fields = [
        choice("run", "Run", options, str(run.id)),
        choice("step", "Step", [(str(stored), str(stored)) for stored in reversed(steps)], str(step)),
    ]
    above = links([link("cycle", f"Cycle {run.cycle}", number=run.cycle)] if run.cycle else [])
    return page_title("Tokens", form(fields), above)


def _summary(divergences: Sequence[Sequence[float]]) -> Markup:
    values = [value for rollout in divergences for value in rollout]
    if not values:
        return nothing("These rollouts were stored without their tokens.")
    share = percent(half_divergence_share(values), 1)
    return _html.divergence_summary(share, f"{sum(values) / len(values):.3f}", f"{max(values):.2f}")
