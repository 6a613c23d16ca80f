"""The run that goes on: how far it is, how long it will take, what it writes, what it takes; and a way to stop it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import gradio as gr

from dashboard.actions import ActionError
from dashboard.pages.cycle import BRINGS
from dashboard.ui.chart_embed import framed
from dashboard.ui.components import DOING, badge, card, clock, duration, size, stale
from dashboard.ui.layout import link, shown
from dashboard.ui.polling import SEE, Asked, NotThere, Site, acting, changes, follow
from dashboard.ui.training_curves import Run as Curves
from dashboard.ui.training_curves import curves
from db.types import now
from db.views import Resource, Run

ROLLOUTS = 4
MEASURES = {
    "rss_bytes": "Memory",
    "cpu_percent": "Processor",
    "gpu_bytes": "Graphics memory",
}


def page(app: gr.Blocks, site: Site) -> None:
    top = gr.HTML(elem_id="progress")
    drawn = gr.HTML(elem_id="curves")
    rest = gr.HTML(elem_id="said")
    follow(app, site, "live", [top, drawn, rest, _stopping(site)], fill, mark)


def mark(asked: Asked) -> Any:
    run = _run(asked)
    if run is None:
        return changes(asked)
    reader = asked.reader
    return changes(asked), run.heartbeat_at, reader.last_step(run.id), reader.last_rollout(run.id)


def fill(asked: Asked) -> list[Any]:
    run = _run(asked)
    if run is None:
        last = next(iter(asked.reader.runs(asked.project.id)), None)
        if last is None:
            raise NotThere
        where = link("cycle", f"Cycle {last.cycle}", number=last.cycle) if last.cycle else f"run {last.id}"
        ended = f"The last run, {DOING[last.kind].lower()} in {where}, is {last.status}"
        when = f" since {clock(last.finished_at)}" if last.finished_at else ""
        later = "<p>This page fills as soon as a run begins.</p>"
        raise NotThere(f"<h1>Nothing is running</h1><p>{ended}{when}.</p>{later}")
    step = asked.reader.last_step(run.id)
    resources = asked.reader.resources(run.id, after=now() - timedelta(minutes=10))
    figure = None
    if run.kind in BRINGS:
        figure = curves([Curves(DOING[run.kind], BRINGS[run.kind], asked.numbers.of(run.id))], asked.look)
    can_stop = run.kind in BRINGS and run.cancel_requested_at is None and not stale(run)
    stopping = asked.actions.cancel is not None and can_stop
    return [
        progress(run, step) + _taken(resources),
        framed("curves", figure) if figure else None,
        _last_rollouts(asked, run),
        gr.update(visible=stopping),
    ]


def progress(run: Run, step: int | None) -> str:
    """How far, how fast, how long still; a run that fell silent is said to have."""
    done = 0 if step is None else step + 1
    spent = run.heartbeat_at - run.started_at
    where = f" in {link('cycle', f'cycle {run.cycle}', number=run.cycle)}" if run.cycle else ""
    facts = [f"running for {duration(now() - run.started_at)}", f"on {shown(run.host, 80)}, process {run.pid}"]
    if run.steps and done:
        left = spent / done * max(run.steps - done, 0)
        facts.insert(0, f"about {duration(left)} left")
    if run.cancel_requested_at is not None:
        facts.insert(0, "asked to stop; it does so after the step it is at")
    if stale(run):
        facts = [f"last heard of on {clock(run.heartbeat_at)}: its process on {shown(run.host, 80)} seems to be gone"]
    of = f" of {run.steps}" if run.steps else ""
    counted = f"step {done}{of}" if run.kind in BRINGS else "measuring"
    meter = f'<progress value="{done}" max="{run.steps}" aria-label="Steps done"></progress>' if run.steps else ""
    title = f"{DOING[run.kind]}{where}: {counted}"
    return f'<section class="verdict">{badge(run.status)}<h1>{title}</h1>{meter}<p>{" · ".join(facts)}</p></section>'


def _run(asked: Asked) -> Run | None:
    """The one in the address, or else the last that began among those that go on."""
    going = [run for run in asked.reader.runs(asked.project.id) if run.status == "running"]
    return next((run for run in going if run.id == asked.number("run")), going[0] if going else None)


def _taken(resources: Sequence[Resource]) -> str:
    latest = resources[-1].values if resources else {}
    cells = [
        (name, size(value) if key.endswith("bytes") else f"{value:.0f} %", _range(key, resources))
        for key, name in MEASURES.items()
        if isinstance(value := latest.get(key), int | float)
    ]
    inside = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{value}</dd><dd class="note">{note}</dd></div>'
        for name, value, note in cells
    )
    return f'<dl class="tiles">{inside}</dl>' if cells else ""


def _range(key: str, resources: Sequence[Resource]) -> str:
    values = [one.values[key] for one in resources if isinstance(one.values.get(key), int | float)]
    highest = size(max(values)) if key.endswith("bytes") else f"{max(values):.0f} %"
    a_core = "; 100 % is one core" if key == "cpu_percent" else ""
    return f"highest in 10 min: {highest}{a_core}"


def _last_rollouts(asked: Asked, run: Run) -> str | None:
    step = asked.reader.last_rollout(run.id)
    if step is None:
        return None
    told = asked.reader.rollouts(run.id, after=step - 1)[:ROLLOUTS]
    pairs = [(shown(one.prompt, 600), shown(one.text, 2000)) for one in told]
    body = "".join(
        f'<article class="item"><h3 class="text">{prompt}</h3><p class="text">{text}</p></article>'
        for prompt, text in pairs
    )
    return card("Last rollouts", body, f"Step {step}. {link('tokens', 'Token by token', run=run.id, step=step)}")


def _stopping(site: Site) -> gr.Column:
    with gr.Column(visible=False, elem_classes="doing", elem_id="stop-box") as box:
        sure = gr.Checkbox(label="I want this run to stop after the step it is at", elem_id="stop-sure")
        said, outcome = gr.Textbox(visible=False), gr.HTML()
        button = gr.Button("Stop the run", size="sm", variant="stop", elem_id="stop")

    def stop(sure: bool, said: str) -> tuple[str, bool]:
        return acting(site, said, lambda asked: _stopped(asked, sure)), False

    def _stopped(asked: Asked, sure: bool) -> str:
        run = _run(asked)
        if asked.actions.cancel is None or run is None:
            raise ActionError("Nothing is running that could be stopped.")
        if not sure:
            raise ActionError(
                "Tick the box first: the run saves itself and ends, and `recover resume` goes on from there."
            )
        asked.actions.cancel(run.id)
        return f"Run {run.id} was asked to stop."

    button.click(stop, [sure, said], [outcome, sure], js=SEE, queue=False, api_visibility="private")
    return box
