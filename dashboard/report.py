"""One cycle as a single file to mail: the same words, tables and charts as its pages, with nothing to fetch."""

import html
import re
from collections.abc import Sequence

from dashboard.pages import cycle_sections as parts
from dashboard.pages import score_summaries as story
from dashboard.pages.cycle import BRINGS
from dashboard.pages.notes import notes_of
from dashboard.pages.overview import summary
from dashboard.ui import charts
from dashboard.ui.chart_embed import PROGRAM, chart
from dashboard.ui.charts import FONT, LIGHT, Look
from dashboard.ui.components import DOING, card, clock
from dashboard.ui.layout import SCRIPT, STYLE, shown
from dashboard.ui.run_metrics import Numbers
from dashboard.ui.static_files import read_static
from dashboard.ui.training_curves import Run as Curves
from dashboard.ui.training_curves import curves
from db.errors import RecordError
from db.queries import Reader
from db.types import now
from db.views import Project

GUARD = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""Nothing in the file can reach anything outside it, whatever its words say."""


def report(reader: Reader, project: Project, number: int) -> str:
    """The HTML of a report on a cycle, by its number."""
    cycles = reader.cycles(project.id)
    cycle = next((one for one in cycles if one.number == number), None)
    if cycle is None:
        known = f"cycles 1 to {cycles[-1].number}" if cycles else "no cycle"
        raise RecordError(f"There is no cycle {number} on record, which knows {known}.")
    upto = cycles[: cycles.index(cycle) + 1]
    trails, clean, look = story.trails(upto, reader.stages(project.id)), story.clean_mark(upto), Look()
    runs = [run for run in reversed(reader.runs(project.id)) if run.cycle == number]
    training, numbers = [run for run in runs if run.kind in BRINGS], Numbers(reader)
    earlier = upto[-2] if len(upto) > 1 else None
    before = [run for run in reader.runs(project.id) if earlier and run.cycle == earlier.number and run.kind in BRINGS]
    measured = parts.measured_in(reader, cycle, runs)
    drawn = curves([Curves(DOING[run.kind], BRINGS[run.kind], numbers.of(run.id)) for run in training], look)
    sections = [
        summary(reader, project, cycle, trails[-1], clean, runs, numbers),
        card("Over the cycles", chart("over-time", charts.over_time(trails, clean, look))),
        card("Knowledge against behaviour", chart("plane", charts.plane(trails, clean, look))),
        parts.gate(cycle),
        parts.measurements(measured, cycle),
        parts.earlier(measured, cycle, upto),
        parts.kinds(measured, cycle),
        parts.timeline(runs, reader.promotions(project.id), cycle),
        card("Curves", chart("curves", drawn)) if drawn else "",
        parts.settings(training, before, earlier),
        parts.documents(reader, cycle, project.root),
    ]
    own = [re.sub(r"</?a\b[^>]*>", "", section) for section in sections]  # there are no pages to lead to
    return _file(f"Cycle {number} of {project.name}", [*own, notes_of(reader.notes(project.id, cycle=cycle.id))])


def _file(title: str, sections: Sequence[str]) -> str:
    palette = f"body {{ background: #f6f7f9; color: {LIGHT.ink}; font: 15px/1.5 {FONT}; margin: 0 }}"
    style = f"{STYLE}\n{palette} main {{ max-width: 1080px; margin: 0 auto; padding: 20px }} .save {{ display: none }}"
    # A chart keeps the colours it was drawn in, so the file has one look: that of paper.
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{GUARD}">'
        f"<style>{style}</style><script>{read_static(PROGRAM)}</script></head><body><main>"
        f'<header class="masthead"><span class="brand">recover</span><span class="project">{shown(title)}, as of '
        f"{clock(now())}</span></header>{''.join(sections)}</main>{SCRIPT}</body></html>"
    )
