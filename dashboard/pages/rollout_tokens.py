"""What the student wrote, every token tinted by how far it is from its teacher there."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from dashboard.ui.chart_embed import framed
from dashboard.ui.components import card, choice, form, save_buttons
from dashboard.ui.layout import link, plain, shown
from dashboard.ui.polling import Asked, NotThere, Site, changes, follow
from dashboard.ui.signal_shape_chart import by_place, half_lies_in
from db.views import Rollout, Run

MOST_TOKENS = 800
"""Of one rollout; the rest is counted, not drawn."""


class Token(NamedTuple):
    text: str
    divergence: float
    student: list[tuple[str, float]]
    teacher: list[tuple[str, float]]


def page(app: gr.Blocks, site: Site) -> None:
    top = gr.HTML()
    drawn = gr.HTML(elem_id="geometry")
    follow(app, site, "tokens", [top, drawn, gr.HTML(elem_id="rollouts")], fill, mark)


def mark(asked: Asked) -> Any:
    running = [run for run in asked.reader.runs(asked.project.id) if run.status == "running"]
    return changes(asked), [asked.reader.last_rollout(run.id) for run in running]


def fill(asked: Asked) -> list[Any]:
    told = asked.reader.runs_with_rollouts(asked.project.id)
    if not told:
        what = "<h1>No rollouts on record yet</h1><p>A distillation keeps some of what the student writes:</p>"
        raise NotThere(f"{what}<pre>recover distill --teacher base</pre>")
    run = next((one for one in told if one.id == asked.number("run")), told[0])
    steps = asked.reader.rollout_steps(run.id)
    step = asked.number("step") if asked.number("step") in steps else steps[-1]
    rollouts = [one for one in asked.reader.rollouts(run.id, after=(step or 0) - 1, until=step)]
    tokens = [tokens_of(one) for one in rollouts]
    body = "".join(_rollout(place, one, its) for place, (one, its) in enumerate(zip(rollouts, tokens, strict=True)))
    divergences = [[token.divergence for token in its] for its in tokens if its]
    return [
        _asking(told, run, steps, step) + _geometry(divergences),
        framed("divergence", figure) if (figure := by_place(divergences, asked.look)) else None,
        card(f"Rollouts of step {step}", body, "Hover or focus a token to see what both models would have said there."),
    ]


def tokens_of(rollout: Rollout) -> list[Token]:
    """The tokens on record that have the shape they should have; a record may come from anywhere."""
    found = []
    for entry in rollout.tokens if isinstance(rollout.tokens, list) else ():
        match entry:
            case [str(text), int() | float() | None as divergence, list(student), list(teacher)]:
                found.append(Token(text, float(divergence or 0), _choices(student), _choices(teacher)))
    return found


def _choices(told: Sequence[Any]) -> list[tuple[str, float]]:
    return [
        (str(one[0]), float(one[1])) for one in told if isinstance(one, list) and len(one) == 2 and one[1] is not None
    ]


def _asking(told: Sequence[Run], run: Run, steps: Sequence[int], step: int | None) -> str:
    runs = [(str(one.id), f"run {one.id}" + (f", cycle {one.cycle}" if one.cycle else "")) for one in told]
    fields = choice("run", "Run", runs, str(run.id))
    fields += choice("step", "Step", [(str(one), str(one)) for one in reversed(steps)], str(step))
    ways = link("cycle", f"Cycle {run.cycle}", number=run.cycle) if run.cycle else ""
    return f'<section class="section"><p class="ways">{ways}</p><h1>Tokens</h1>{form(fields)}</section>'


def _geometry(divergences: Sequence[Sequence[float]]) -> str:
    flat = [value for told in divergences for value in told]
    if not flat:
        return '<p class="nothing">These rollouts were kept without their tokens.</p>'
    share = half_lies_in(flat)
    said = f"Half of the divergence lies in {share:.1%} of the tokens".replace("%", " %")
    mean = f"mean {sum(flat) / len(flat):.3f} nats a token, highest {max(flat):.2f}"
    scale = '<span class="scale" aria-hidden="true"></span>'
    note = f"{mean}. Tint: {scale} none to 2 nats and more."
    note += ' Bars: <span class="key mean"></span>mean of the samples <span class="key highest"></span>highest of them.'
    saving = save_buttons("divergence", "png", "svg", of="#geometry")
    return f'<section class="section"><h2>{said}</h2><p class="note">{note}</p>{saving}</section>'


def _rollout(place: int, rollout: Rollout, tokens: Sequence[Token]) -> str:
    text = "".join(_token(token) for token in tokens[:MOST_TOKENS]) if tokens else shown(rollout.text, 20_000)
    more = f'<p class="note">and {len(tokens) - MOST_TOKENS} more tokens</p>' if len(tokens) > MOST_TOKENS else ""
    cut = " · cut off" if rollout.truncated else ""
    reward = f" · reward {rollout.reward:.2f}" if rollout.reward is not None else ""
    title = f'<p class="note">Sample {place + 1}{cut}{reward}</p><h3 class="text">{shown(rollout.prompt, 2000)}</h3>'
    return f'<article class="item">{title}<div class="tokens text"><bdi>{text}</bdi></div>{more}</article>'


def _token(token: Token) -> str:
    tint = round(math.sqrt(min(1.0, max(0.0, token.divergence / 2))), 2)
    sides = "".join(
        f"<span><b>{name}</b>{''.join(f'<i>{_visible(text)} {p:.2f}</i>' for text, p in choices[:5])}</span>"
        for name, choices in (("student", token.student), ("teacher", token.teacher))
    )
    told = f'<span class="told" role="tooltip"><b>KL {token.divergence:.3f}</b>{sides}</span>'
    return f'<span class="token" tabindex="0" style="--tint: {tint}">{plain(token.text)}{told}</span>'


def _visible(text: str) -> str:
    """White space alone would look like no choice at all."""
    return plain(text.replace("\n", "↵").replace(" ", "␣")[:40])
