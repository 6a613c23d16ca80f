"""A cycle, a study, or what a fine-tune has forgotten, as one HTML file to mail, with nothing to fetch."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from dashboard.pages import cycle as cycle_parts
from dashboard.pages import cycle_summary as summaries
from dashboard.pages import studies as study_parts
from dashboard.pages.forms import notes_card
from dashboard.pages.overview import summary
from dashboard.ui.caches import RunMetrics
from dashboard.ui.charts.cycles import over_time, plane
from dashboard.ui.charts.figure import FONT, LIGHT, Figure, Look
from dashboard.ui.charts.runs import curves
from dashboard.ui.html import PLOTLY, Cell, badge, bdi, card, chart, join, load, page_title, signed, table
from dashboard.ui.layout import SCRIPT, STYLE, read_static
from db import RecordError
from db.column_types import now
from db.queries import Reader
from db.tables import Project, Study

# The file cannot load anything, whatever texts it contains.
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
# A chart keeps the colours it was drawn in, so the file has a light look only.
PAGE_STYLE = f"""body {{ background: #f6f7f9; color: {LIGHT.ink}; font: 15px/1.5 {FONT}; margin: 0 }}
main {{ max-width: 1080px; margin: 0 auto; padding: 20px }} .save {{ display: none }}"""
_html = load("layout.html")
COLUMNS = ("", "base", "fine-tune", "difference", "95 % interval", "items")
BADGES = {"passed": "done", "failed": "failed", "inconclusive": "inconclusive"}


def report(reader: Reader, project: Project, number: int) -> str:
    """The HTML of a report on a cycle, by its number."""
    cycles = reader.cycles(project.id)
    cycle = next((candidate for candidate in cycles if candidate.number == number), None)
    if cycle is None:
        last = cycles[-1].number if cycles else 0
        existing = (
            f"The last one in the record is {last}."
            if last
            else "The record has no cycles: `recover dashboard` shows runs, such as those of a repair."
        )
        raise RecordError(f"There is no cycle {number}. {existing}")
    past = cycles[: cycles.index(cycle) + 1]
    stages, decisions = reader.stages(project.id), reader.promotions(project.id)
    trails = summaries.trails(past, stages, reader.drift(project.id), reader.current(project.id))
    clean = summaries.clean_mark(past[-1])
    runs, metrics = reader.runs(project.id), RunMetrics(reader)
    cycle_runs = [run for run in reversed(runs) if run.cycle == number]
    curve_chart = _chart("curves", partial(curves, cycle_parts.curves_of(cycle_runs, metrics)))
    sections = [
        summary(reader, project, cycle, trails[-1], clean, cycle_runs, metrics, is_last=cycle == cycles[-1]),
        card("Over the cycles", _chart("over-time", partial(over_time, trails, clean))),
        card("New knowledge against what must stay", _chart("plane", partial(plane, trails, clean))),
        *cycle_parts.results(reader, cycle, past, stages, decisions),
        cycle_parts.timeline(reader, cycle_runs, decisions, cycle, metrics),
        card("Curves", curve_chart) if curve_chart else "",
        cycle_parts.settings(runs, cycle, past[-2] if len(past) > 1 else None),
        cycle_parts.documents(reader, cycle, project.root),
    ]
    unlinked = [Markup(re.sub(r"</?a\b[^>]*>", "", section)) for section in sections]  # there are no other pages
    notes = notes_card(reader.notes(project.id, cycle=cycle.id))
    return _file(f"Cycle {number} of {project.name}", [*unlinked, notes], program=read_static(PLOTLY))


def _chart(name: str, draw: Callable[[Look], Figure | None]) -> Markup:
    figure = draw(Look())
    return chart(name, figure, draw(Look(narrow=True))) if figure else Markup()


def study_report(study: Study) -> str:
    """The HTML of a study on one page."""
    sections = [
        card(study.declaration["title"], study_parts.head(study) + study_parts.claim_table(study)),
        card("Differences", study_parts.picture(study), study_parts.PICTURE_NOTE),
        card(
            "Arms", join(study_parts.arm_pictures(study).values()) + study_parts.arm_table(study), study_parts.ARMS_NOTE
        )
        if study.arms
        else "",
    ]
    return _file(f"Study: {study_parts.title_of(study)}", sections)


def _file(title: str, sections: Sequence[Markup | str], program: str = "", script: str = SCRIPT) -> str:
    return str(
        _html.report(
            title=title,
            time=now(),
            policy=POLICY,
            style=Markup(f"{STYLE}\n{PAGE_STYLE}"),
            program=Markup(program),
            script=Markup(script),
            sections=sections,
        )
    )


def check_page(data: Mapping[str, Any]) -> str:
    title = f"{data['checkpoint']} beside {data['base']}"
    is_broken = any(fault["repairable"] for fault in data["turn_ends"]["faults"])
    outcome = badge(BADGES["failed" if is_broken else data["outcome"]])
    sections = [
        page_title(bdi(title, 200), _paragraphs([data["summary"]]), outcome),
        card("Forgotten", _table("What the fine-tune has forgotten", data["forgotten"])),
        card("Learned", _table("What the fine-tune has learned", data["learned"])) if data["learned"] else "",
        card("How turns end", _turn_ends(data["turn_ends"])),
        card("Notes", _paragraphs(data["notes"])) if data["notes"] else "",
    ]
    return _file(title, sections, script="")


def _turn_ends(ends: Mapping[str, Any]) -> Markup:
    rows = [[Cell(text) for text in row] for row in ends["rows"]]
    sentences = [f"{fault['what']}. {fault['cure']}" for fault in ends["faults"]] or [
        "The turns of the model end where they should."
    ]
    return _paragraphs(sentences) + table(
        "The tokens that end a turn, and what both models do", ("", "fine-tune", "base"), rows
    )


def _paragraphs(texts: Sequence[str]) -> Markup:
    return Markup("").join(Markup("<p>{}</p>").format(text) for text in texts)


def _table(caption: str, rows: list[dict[str, Any]]) -> Markup:
    return table(caption, COLUMNS, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[Cell]:
    low, high = row["ci95"]
    interval = "–" if low is None else f"{signed(low)} to {signed(high)}"
    name = ("– " if row["suite"] != "knowledge" and (row["kind"] or row["task"]) else "") + row["name"]
    numbers = (f"{row['base']:.3f}", f"{row['model']:.3f}", signed(row["difference"]), interval, f"{row['n']:,}")
    return [Cell(name), *(Cell(text, "number") for text in numbers)]
