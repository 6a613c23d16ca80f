"""One cycle from its documents to its verdict: stages, curves, the gate, evaluations, settings, notes."""

from collections.abc import Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages import cycle_sections as sections
from dashboard.pages import score_summaries as summaries
from dashboard.pages.notes import note_form, notes_card
from dashboard.pages.overview import verdict
from dashboard.pages.promotion_form import promotion_form
from dashboard.pages.repaired_models import no_cycle
from dashboard.ui.chart_embed import chart_card
from dashboard.ui.charts.figure import Axis
from dashboard.ui.charts.training_curves import RunCurves, curves, meanings
from dashboard.ui.components import choice, form, links
from dashboard.ui.jinja import join, link, load
from dashboard.ui.number_formats import STAGE_NAMES
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll, project_version
from dashboard.ui.run_metrics import RunMetrics
from db.tables import Cycle, Run

TARGETS: dict[str, Axis] = {"midtrain": "knowledge", "distill": "behaviour"}  # the score each kind of training is for
SMOOTHING = {"": 0.0, "some": 0.8, "much": 0.95}
SCALES = [("", "linear"), ("log", "logarithmic")]
_html = load("cycle.html")


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    ids = ("stages", "curves-head", "curves", "details", "notes")
    parts = [gr.HTML(), *(gr.HTML(elem_id=id) for id in ids)]
    parts += [note_form(dashboard, _subject), promotion_form(dashboard, _subject)]
    poll(app, dashboard, "cycle", parts, render, version)


def version(request: PageRequest) -> Any:
    """A running cycle has new steps to draw before anything else about it changes."""
    running = [run for run in request.reader.runs(request.project.id) if run.status == "running"]
    return project_version(request), [request.reader.last_step(run.id) for run in running]


def render(request: PageRequest) -> list[Any]:
    reader, project, actions = request.reader, request.project, request.actions
    cycles = reader.cycles(project.id)
    cycle = requested_cycle(request, cycles)
    past = cycles[: cycles.index(cycle) + 1]
    stages, decisions = reader.stages(project.id), reader.promotions(project.id)
    trail = summaries.trails(past, stages)[-1]
    runs = reader.runs(project.id)
    own = [run for run in reversed(runs) if run.cycle == cycle.number]
    smoothing, log = request.query.get("smoothing", ""), request.query.get("scale") == "log"
    figure = curves(curves_of(own, request.metrics), request.look, SMOOTHING.get(smoothing, 0.0), log)
    fields = [
        choice("smoothing", "Smoothing", [(name, name or "none") for name in SMOOTHING], smoothing),
        choice("scale", "Scale", SCALES, "log" if log else ""),
    ]
    filters = form(fields, hidden={"number": cycle.number})
    evaluations = sections.latest_evaluations(reader, cycle, own)
    details = [
        sections.attempts(stages, decisions, cycle),
        sections.frontier(reader, stages, cycle),
        sections.gate(cycle),
        sections.measurements(evaluations, cycle),
        sections.earlier_knowledge(evaluations, cycle, cycles),
        sections.instruction_kinds(evaluations, cycle),
        sections.settings(runs, cycle, past[-2] if len(past) > 1 else None),
        sections.documents(reader, cycle, project.root),
    ]
    return [
        _links(cycle, cycles) + verdict(cycle, trail, summaries.clean_mark(past), own, decisions, cycle == cycles[-1]),
        sections.timeline(own, decisions, cycle),
        _html.curves_head(filters, meanings(figure)) if figure else None,
        chart_card("curves", figure) if figure else None,
        join(details),
        notes_card(reader.notes(project.id, cycle=cycle.id)),
        gr.update(visible=actions.add_note is not None),
        gr.update(visible=actions.promote is not None and _may_decide(request, cycle)),
    ]


def curves_of(runs: Sequence[Run], metrics: RunMetrics) -> list[RunCurves]:
    """The training curves of those runs that train; several distillations of a cycle are numbered."""
    training = [run for run in runs if run.kind in TARGETS]
    attempts = [run.id for run in training if run.kind == "distill"]
    names = {id: f", attempt {number}" for number, id in enumerate(attempts, 1)} if len(attempts) > 1 else {}
    return [
        RunCurves(STAGE_NAMES[run.kind] + names.get(run.id, ""), TARGETS[run.kind], metrics.series(run.id))
        for run in training
    ]


def requested_cycle(request: PageRequest, cycles: Sequence[Cycle]) -> Cycle:
    """The cycle in the address, by default the latest."""
    if not cycles:
        raise no_cycle(request)
    if "number" not in request.query:
        return cycles[-1]
    cycle = next((cycle for cycle in cycles if cycle.number == request.number("number")), None)
    if cycle is None:
        raise NotFound("There is no such cycle", link=link("cycles", "All cycles"))
    return cycle


def _may_decide(request: PageRequest, cycle: Cycle) -> bool:
    """Only a checkpoint that is not current can be promoted or rejected."""
    checkpoint = cycle.recovered.checkpoint
    return checkpoint is not None and checkpoint != request.reader.current(request.project.id)


def _subject(request: PageRequest) -> tuple[int | None, int | None]:
    """What notes and decisions on this page are about: the cycle and its final checkpoint."""
    cycle = requested_cycle(request, request.reader.cycles(request.project.id))
    return cycle.id, cycle.recovered.checkpoint.id if cycle.recovered.checkpoint else None


def _links(cycle: Cycle, cycles: Sequence[Cycle]) -> Markup:
    numbers = [one.number for one in cycles]
    index = numbers.index(cycle.number)
    result = [link("cycles", "All cycles")]
    if index > 0:
        result.append(link("cycle", f"← Cycle {numbers[index - 1]}", number=numbers[index - 1]))
    if index + 1 < len(numbers):
        result.append(link("cycle", f"Cycle {numbers[index + 1]} →", number=numbers[index + 1]))
    ends = [stage.checkpoint.id for stage in (cycle.clean, cycle.recovered) if stage.checkpoint]
    if len(ends) == 2:
        result.append(link("compare", "Compare with the clean model", a=ends[0], b=ends[1]))
    return links(result)
