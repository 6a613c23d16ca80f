"""The running job: progress, remaining time, curves, rollouts; and a button to stop it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.actions import ActionError
from dashboard.pages.cycle import TARGETS, curves_of
from dashboard.pages.cycle_summary import step_seconds, step_times
from dashboard.ui.charts.runs import Series, curves
from dashboard.ui.html import STAGE_NAMES, bdi, chart_card, clock, duration, join, link, load
from dashboard.ui.polling import (
    ACTION,
    Dashboard,
    NotFound,
    PageRequest,
    mark_shown,
    perform_action,
    poll,
    project_version,
)
from db.tables import DONE, TOTAL, WATCHED, Run

MAX_ROLLOUTS = 4
_html = load("rollouts.html")


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    parts = [gr.HTML(elem_id="progress"), gr.HTML(elem_id="curves"), gr.HTML(elem_id="rollouts")]
    poll(app, dashboard, "live", [*parts, _stop_form(dashboard)], render, version)


def version(request: PageRequest) -> Any:
    run, reader = _running(request), request.reader
    if run is None:
        return project_version(request)
    return project_version(request), run.heartbeat_at, reader.last_step(run.id), reader.last_rollout(run.id)


def render(request: PageRequest) -> list[Any]:
    run = _running(request)
    if run is None:
        raise _nothing_running(request)
    counts = () if run.kind in TARGETS else request.reader.points(run.id, names=(DONE, TOTAL))
    items = {point.name: point.value for point in counts}
    figure = curves(curves_of([run], request.metrics), request.look)
    stoppable = run.kind in TARGETS and run.cancel_requested_at is None and not run.stale
    return [
        mark_shown(run=run.id) + progress(run, request.reader.last_step(run.id), items, request.metrics.series(run)),
        chart_card("curves", figure) if figure else None,
        _last_rollouts(request, run),
        gr.update(visible=request.actions.cancel is not None and stoppable),
    ]


def progress(run: Run, last_step: int | None, items: Mapping[str, float], metrics: Mapping[str, Series]) -> Markup:
    """Steps or items, speed, remaining time; or that the process seems to have ended. `items` are a measurement's.

    What is left is told by what the steps took: the time since the start has interruptions in it."""
    last_step = last_step if run.kind in TARGETS else None
    is_watched = run.inputs.stage == WATCHED  # its readings are sparse, and numbered by the steps that were done
    steps = 0 if last_step is None else last_step + (not is_watched)
    host = bdi(run.host, 80)
    facts = [f"first started {clock(run.started_at)}", join(["on ", host, f", process {run.pid}"])]
    if times := step_times(metrics):
        facts.append(times)
    if run.steps and steps and not is_watched:
        of_probes = sum(seconds for _, seconds in metrics.get("probe/seconds", ()))
        of_steps = sum(step_seconds(metrics).values())
        took = timedelta(seconds=of_steps + of_probes) if of_steps else run.heartbeat_at - run.started_at
        facts.insert(0, f"about {duration(took / steps * max(run.steps - steps, 0))} left of this run")
    if run.cancel_requested_at is not None:
        facts.insert(0, "stop requested: it stops after the current step")
    if run.stale:
        facts = [join([f"last heartbeat at {clock(run.heartbeat_at)}: its process on ", host, " seems to have ended"])]
    count = f"{'last reading after ' if is_watched else ''}step {steps}" + (f" of {run.steps}" if run.steps else "")
    if is_watched and not steps:
        count = "no reading yet"
    if run.kind not in TARGETS:
        count = f"{items[DONE]:,.0f} of {items[TOTAL]:,.0f} items of this task" if TOTAL in items else "in progress"
    return _html.progress(run, STAGE_NAMES[run.kind], count, steps, facts)


def _running(request: PageRequest) -> Run | None:
    """The run in the address, by default the last started of those that are running."""
    running = request.running
    return next((run for run in running if run.id == request.number("run")), running[0] if running else None)


def _nothing_running(request: PageRequest) -> NotFound:
    last = next(iter(request.reader.runs(request.project.id)), None)
    if last is None:
        return NotFound()
    since = f" since {clock(last.finished_at)}" if last.finished_at else ""
    text = f"The last run, {STAGE_NAMES[last.kind].lower()} (run {last.id}), is {last.status}{since}. "
    target = link("cycle", f"Cycle {last.cycle}", number=last.cycle) if last.cycle else None
    return NotFound("Nothing is running", f"{text}This page updates by itself as soon as a run starts.", link=target)


def _last_rollouts(request: PageRequest, run: Run) -> Markup | None:
    step = request.reader.last_rollout(run.id)
    if step is None:
        return None
    return _html.last_rollouts(run, step, request.reader.rollouts(run.id, step)[:MAX_ROLLOUTS])


def _stop_form(dashboard: Dashboard) -> gr.Column:
    with gr.Column(visible=False, elem_classes="action-box", elem_id="stop-box") as box:
        confirmed = gr.Checkbox(label="Stop this run after the current step", elem_id="stop-confirm")
        browser_state, message = gr.Textbox(visible=False), gr.HTML()
        button = gr.Button("Stop the run", size="sm", variant="stop", elem_id="stop")

    def stop(confirmed: bool, browser_state: str) -> tuple[str, bool]:
        return perform_action(dashboard, browser_state, lambda request: _stop(request, confirmed)), False

    button.click(stop, [confirmed, browser_state], [message, confirmed], **ACTION)
    return box


def _stop(request: PageRequest, confirmed: bool) -> str:
    run = _running(request)
    if request.actions.cancel is None or run is None:
        raise ActionError("Nothing is running that could be stopped.")
    request.require_shown("run", run.id)
    if not confirmed:
        end = "saves its state and ends; `recover resume` continues it"
        if run.inputs.stage == WATCHED:
            end = "ends after its step; `recover resume` does not continue it"
        raise ActionError(f"Tick the box first. The run {end}.")
    request.actions.cancel(run.id)
    return f"Stop requested for run {run.id}."
