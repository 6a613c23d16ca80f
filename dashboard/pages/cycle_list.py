"""All cycles in one table, with filters and sorting; each row links to its cycle."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages import cycle_summary as summaries
from dashboard.pages.repaired_models import no_cycle
from dashboard.ui.caches import RunMetrics
from dashboard.ui.charts.cycles import Trail
from dashboard.ui.charts.figure import NAMES, Axis
from dashboard.ui.html import (
    Cell,
    badge,
    bdi,
    card,
    change,
    choice,
    clock,
    duration,
    form,
    join,
    link,
    load,
    nothing,
    page_title,
    search_field,
    table,
    with_note,
)
from dashboard.ui.polling import Dashboard, PageRequest, poll
from db.headline_scores import MEASURES
from db.tables import Cycle, Run

Row = tuple[Cycle, Trail]
STATUSES = [
    ("", "any verdict"),
    *((name, name) for name in ("open", "promoted", "inconclusive", "rejected", "discarded")),
]
TABLE_NOTE = "Scores before the cycle → after mid-training → after distillation. Time: training steps and evaluations."
_html = load("overview.html")


def _final_score(axis: Axis, row: Row) -> float:
    level = row[1].recovered and row[1].recovered.level(axis)
    return level.value if level else -1.0


SORTS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "": ("newest first", lambda row: row[0].number),
    "oldest": ("oldest first", lambda row: -row[0].number),
    **{axis: (MEASURES[axis], partial(_final_score, axis)) for axis in NAMES},
}


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    poll(app, dashboard, "cycles", [gr.HTML(), gr.HTML(elem_id="cycles")], render)


def render(request: PageRequest) -> list[Any]:
    cycles = request.reader.cycles(request.project.id)
    if not cycles:
        raise no_cycle(request)
    status, text, sort = (request.query.get(name, "") for name in ("status", "documents", "sort"))
    sort = sort if sort in SORTS else ""
    reader, project = request.reader, request.project
    trails = summaries.trails(cycles, reader.stages(project.id), current=reader.current(project.id))
    rows = [
        row
        for row in zip(cycles, trails, strict=True)
        if status in ("", row[1].status) and text.lower() in (row[0].documents or "").lower()
    ]
    rows.sort(key=SORTS[sort][1], reverse=True)
    fields = [
        choice("status", "Verdict", STATUSES, status),
        search_field("documents", "Documents", text),
        choice("sort", "Order", [(name, label) for name, (label, _) in SORTS.items()], sort),
    ]
    count = f"{len(rows)} of {len(cycles)}" if len(rows) < len(cycles) else len(cycles)
    runs = reader.runs(project.id)
    body = (
        cycle_table(rows, runs, request.metrics, project.root)
        if rows
        else nothing(join(["No cycle matches. ", link("cycles", "Show all")]))
    )
    return [page_title("Cycles", form(fields)), card(f"{count} cycle{'s' * (len(cycles) > 1)}", body)]


def cycle_table(rows: Sequence[Row], runs: Sequence[Run], metrics: RunMetrics, root: str) -> Markup:
    numbers = {cycle.number for cycle, _ in rows}
    seconds = metrics.work_seconds(run for run in runs if run.cycle in numbers)
    midtrainings = {run.cycle: run for run in runs if run.kind == "midtrain"}
    cells = [
        _cells(cycle, trail, summaries.cost(cycle, runs, seconds), root, _how_read(midtrainings.get(cycle.number)))
        for cycle, trail in rows
    ]
    columns = ["Cycle", "Verdict", "Documents", *NAMES.values(), "Steps", "Time", "Opened"]
    caption = "Cycles: scores before, after mid-training, after distillation"
    return _html.cycle_table(table(caption, columns, cells, save="cycles"), TABLE_NOTE)


def documents_path(cycle: Cycle, root: str) -> str:
    """The folder of the documents, relative to the project folder if it is inside."""
    path = PurePath(cycle.documents or "unknown")
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _how_read(midtraining: Run | None) -> str:
    """Whether anything was read beside the documents."""
    mix = midtraining.inputs.mix if midtraining else None
    if mix is None:
        return ""
    return "in a mix" if any(mix.values()) else "alone"


def _cells(cycle: Cycle, trail: Trail, cost: summaries.Cost, root: str, how_read: str) -> list[Cell]:
    return [
        Cell(link("cycle", f"Cycle {cycle.number}", number=cycle.number), "", cycle.number),
        Cell(with_note(badge(cycle.outcome), summaries.decided_by(cycle)), "", cycle.outcome),
        Cell(with_note(bdi(documents_path(cycle, root), 120), how_read), "documents"),
        *(_score_cell(trail, axis) for axis in MEASURES),
        Cell(sum(cost.steps.values()), "number"),
        Cell(nothing(), "number", "")
        if cost.time is None
        else Cell(duration(cost.time), "number", round(cost.time.total_seconds())),
        Cell(clock(cycle.opened_at), "number", cycle.opened_at.isoformat()),
    ]


def _score_cell(trail: Trail, axis: str) -> Cell:
    values = summaries.stage_values(trail, axis)
    if not values:
        return Cell(nothing(), "number", "")
    ends = [mark.level(axis) for mark in (trail.start, trail.recovered or trail.damaged) if mark]
    known = [level for level in ends if level]
    same_items = len(known) == 2 and known[0].items == known[1].items  # others cannot be subtracted
    difference = change(*(level.value for level in known)) if same_items else ""
    return Cell(_html.score_steps(values, difference), "number", " ".join(values))
