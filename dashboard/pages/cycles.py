"""All cycles in one table, to sort and to filter; each row leads to its cycle."""

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import gradio as gr

from dashboard.pages import score_summaries as story
from dashboard.pages.repairs import no_cycle
from dashboard.pages.verdict_text import cell_of
from dashboard.ui import charts
from dashboard.ui.charts import Axis, Trail
from dashboard.ui.components import NOTHING, Cell, change, choice, clock, duration, form, table, words
from dashboard.ui.layout import link, shown
from dashboard.ui.polling import Asked, Site, follow
from dashboard.ui.run_metrics import Numbers
from db.views import Cycle, Run

Row = tuple[Cycle, Trail]
STATUSES = [("", "any verdict"), *((name, name) for name in ("open", "promoted", "inconclusive", "rejected"))]


def _worth(axis: Axis) -> Callable[[Row], float]:
    def value(row: Row) -> float:
        level = row[1].recovered and row[1].recovered.level(axis)
        return level.value if level else -1.0

    return value


SORTS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "": ("newest first", lambda row: row[0].number),
    "oldest": ("oldest first", lambda row: -row[0].number),
    "behaviour": ("instruction following", _worth("behaviour")),
    "knowledge": ("knowledge", _worth("knowledge")),
}


def page(app: gr.Blocks, site: Site) -> None:
    follow(app, site, "cycles", [gr.HTML(), gr.HTML(elem_id="cycles")], fill)


def fill(asked: Asked) -> list[Any]:
    cycles = asked.reader.cycles(asked.project.id)
    if not cycles:
        raise no_cycle(asked)
    status, text, sort = (asked.query.get(name, "") for name in ("status", "documents", "sort"))
    sort = sort if sort in SORTS else ""
    rows = [
        row
        for row in zip(cycles, story.trails(cycles, asked.reader.stages(asked.project.id)), strict=True)
        if status in ("", row[1].status) and text.lower() in (row[0].documents or "").lower()
    ]
    rows.sort(key=SORTS[sort][1], reverse=True)
    runs = asked.reader.runs(asked.project.id)
    fields = choice("status", "Verdict", STATUSES, status) + words("documents", "Documents", text)
    fields += choice("sort", "Order", [(name, said) for name, (said, _) in SORTS.items()], sort)
    shown_rows = table_of(
        [c for c, _ in rows], [t for _, t in rows], runs, asked.numbers, asked.project.root, newest_first=False
    )
    found = (
        f"{len(rows)} of {len(cycles)} cycles"
        if len(rows) < len(cycles)
        else f"{len(cycles)} cycle{'s' * (len(cycles) > 1)}"
    )
    none = f'<p class="nothing">No cycle is like that. {link("cycles", "Show all")}</p>'
    body = shown_rows if rows else none
    return [
        f'<section class="section"><h1>Cycles</h1>{form(fields)}</section>',
        f'<section class="card"><h2>{found}</h2>{body}</section>',
    ]


def table_of(
    cycles: Sequence[Cycle],
    trails: Sequence[Trail],
    runs: Sequence[Run],
    numbers: Numbers,
    root: str,
    newest_first: bool = True,
) -> str:
    pairs, listed = list(zip(cycles, trails, strict=True)), {cycle.number for cycle in cycles}
    worked = numbers.worked(run for run in runs if run.cycle in listed)
    rows = [
        _cells(cycle, trail, story.cost(cycle, runs, worked), root)
        for cycle, trail in (reversed(pairs) if newest_first else pairs)
    ]
    columns = ["Cycle", "Verdict", "Documents", *charts.NAMES.values(), "Steps", "Cost", "Opened"]
    caption = "Cycles: scores before, after mid-training, after distillation"
    note = (
        '<p class="note">Scores before the cycle, after mid-training, after distillation. '
        "Cost: what steps and measurements took.</p>"
    )
    return note + table(caption, columns, rows, save="cycles")


def documents_of(cycle: Cycle, root: str) -> str:
    """Where they lay, from the project's folder where that is shorter."""
    path = PurePath(cycle.documents or "unknown")
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _cells(cycle: Cycle, trail: Trail, spent: story.Cost, root: str) -> list[Cell | str]:
    return [
        Cell(link("cycle", f"Cycle {cycle.number}", number=cycle.number), "", cycle.number),
        cell_of(cycle),
        Cell(shown(documents_of(cycle, root), 120), "documents"),
        *(_steps(trail, axis) for axis in charts.NAMES),
        Cell(str(spent.total), "number"),
        _time(spent),
        Cell(clock(cycle.opened_at), "number", cycle.opened_at.isoformat()),
    ]


def _time(spent: story.Cost) -> Cell:
    if spent.time is None:
        return Cell(NOTHING, "number", "")
    return Cell(duration(spent.time), "number", round(spent.time.total_seconds()))


def _steps(trail: Trail, axis: Axis) -> Cell:
    values = story.way(trail, axis)
    if not values:
        return Cell("not measured", "number", "")
    ends = [mark.level(axis) for mark in (trail.start, trail.recovered or trail.damaged) if mark]
    gone = change(*(level.value if level else None for level in ends)) if len(ends) == 2 else ""
    return Cell(f"{' <span class=arrow>→</span> '.join(values)} {gone}", "number", " ".join(values))
