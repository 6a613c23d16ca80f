"""The overview: was the last cycle good, and why; what was learned, forgotten and brought back so far."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

import gradio as gr

from dashboard import charts, story
from dashboard.charts import Axis, Look, Trail
from dashboard.frame import Pages, head, shown
from db.errors import RecordError
from db.queries import Reader
from db.views import Checkpoint, Cycle, Project, Promotion, Run

SECONDS_BETWEEN_LOOKS = 4
SEE = "(seen, look) => [seen, `${document.body.classList.contains('dark')} ${window.innerWidth <= 760}`]"
"""Only the browser knows what the charts will be seen on; it says so with every question."""
DOING = {"midtrain": "Mid-training", "distill": "Distillation", "eval": "Measuring"}
ICONS = {"promoted": "✓", "rejected": "✕"}
OVER_TIME = """<h2>Over the cycles</h2><p class="note"><span class="key knowledge"></span>mid-training
<span class="key behaviour"></span>distillation <span class="key dotted"></span>clean model · hollow: rolled back ·
bars: 95 % intervals</p>"""
PLANE = """<h2>Knowledge against behaviour</h2><p class="note">To the right: knows more. Up: follows better.
Older cycles are faint.</p>"""


def page(app: gr.Blocks, reader: Reader, project: str | None, pages: Pages) -> None:
    top = gr.HTML(elem_id="summary")
    with gr.Row(visible=False, elem_id="charts") as row:
        with gr.Column(scale=3, min_width=340, elem_classes="card"):
            gr.HTML(OVER_TIME)
            over_time = gr.Plot(show_label=False, container=False, elem_classes="plot", elem_id="over-time")
        with gr.Column(scale=2, min_width=340, elem_classes="card"):
            gr.HTML(PLANE)
            plane = gr.Plot(show_label=False, container=False, elem_classes="plot", elem_id="plane")
    table = gr.HTML(elem_id="cycles")
    seen, look = gr.State(), gr.Textbox(visible=False)

    def refresh(seen: Any, look: str) -> list[Any]:
        try:
            return _refreshed(reader, project, pages, seen, look)
        except RecordError as error:  # it may be readable again by the next tick
            return [None, head("", "", pages) + f'<p role="alert">{shown(error)}</p>', *[gr.skip()] * 4]

    asked: dict[str, Any] = {
        "fn": refresh,
        "inputs": [seen, look],
        "outputs": [seen, top, row, over_time, plane, table],
    }
    asked |= {"js": SEE, "queue": False, "show_progress": "hidden", "api_visibility": "private"}
    app.load(**asked)
    gr.Timer(SECONDS_BETWEEN_LOOKS).tick(**asked)


def _refreshed(reader: Reader, name: str | None, pages: Pages, seen: Any, look: str) -> list[Any]:
    """Everything anew when anything has changed, and nothing at all otherwise: no flicker, no wasted reading."""
    projects = [project for project in reader.projects() if name in (None, project.name)]
    project = projects[-1] if projects else None
    now = (project and reader.changes(project.id), look)
    if now == seen:
        return [gr.skip()] * 6
    cycles = reader.cycles(project.id) if project else []
    if project is None or not cycles:
        return [now, head(name or "", "", pages) + EMPTY, gr.update(visible=False), None, None, ""]
    runs, trails, clean = reader.runs(project.id), story.trails(cycles), story.clean_mark(cycles)
    last = (cycles[-1], trails[-1])
    summary = verdict(*last, clean, runs) + tiles(
        *last, runs, reader.current(project.id), reader.promotions(project.id)
    )
    seen_on = Look(*(word == "true" for word in look.split()))
    drawn = [chart(trails, clean, seen_on) for chart in (charts.over_time, charts.plane)]
    return [
        now,
        head(_title(project), "", pages) + summary,
        gr.update(visible=True),
        *drawn,
        table_of(cycles, trails, runs, project.root),
    ]


def verdict(cycle: Cycle, trail: Trail, clean: charts.Mark | None, runs: Sequence[Run]) -> str:
    opening, pieces = story.headline(trail, clean)
    colored = [
        f'<span class="{axis}">{words} <b>{numbers}</b></span>{beside}' for axis, words, numbers, beside in pieces
    ]
    sentence = opening + (": " + ", ".join(colored) if colored else "") + "."
    reason = (cycle.verdict or {}).get("reason")
    said = [f"<p>{_capital(shown(reason, 500))}.</p>"] if reason else []
    running = [run for run in runs if run.status == "running"]
    said += [f"<p>{DOING[run.kind]} has been running since {_clock(run.started_at)}.</p>" for run in running]
    if cycle.status == "open" and not running:
        said.append(
            f"<p>Run next: <code>{'recover distill --teacher base' if trail.damaged else 'recover status'}</code></p>"
        )
    return f'<section class="verdict">{_badge(cycle.status)}<h1>{sentence}</h1>{"".join(said)}</section>'


def tiles(
    cycle: Cycle, trail: Trail, runs: Sequence[Run], current: Checkpoint | None, promotions: Sequence[Promotion]
) -> str:
    promoted = next((p for p in promotions if current and p.checkpoint_id == current.id), None)
    decided = f"promoted {_clock(promoted.at)} by {shown(promoted.who, 40)}" if promoted else "the clean model"
    spent = story.cost(cycle, runs)
    steps = ", ".join(f"{count} steps of {kind}" for kind, count in spent.steps.items())
    cells = [
        ("Current checkpoint", shown(current.reference.removesuffix("/recovered") if current else "none", 60), decided),
        ("Damage undone", *_share(trail, "behaviour", "of the instruction following lost")),
        ("Knowledge kept", *_share(trail, "knowledge", "of what mid-training taught")),
        (f"Cost of cycle {cycle.number}", story.duration(spent.time), steps or "nothing trained yet"),
    ]
    inside = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{value}</dd><dd class="note">{note}</dd></div>'
        for name, value, note in cells
    )
    return f'<dl class="tiles">{inside}</dl>'


def table_of(cycles: Sequence[Cycle], trails: Sequence[Trail], runs: Sequence[Run], root: str) -> str:
    """The newest first. On a phone the stylesheet turns each row into a card with the labels given here."""
    columns = ["Cycle", "Verdict", "Documents", *charts.NAMES.values(), "Cost", "Opened"]
    rows = []
    for cycle, trail in reversed(list(zip(cycles, trails, strict=True))):
        spent = story.cost(cycle, runs)
        cells = [shown(_documents(cycle, root), 120), *(_steps(trail, axis) for axis in charts.NAMES)]
        cells += [f"{spent.total} steps, {story.duration(spent.time)}", _clock(cycle.opened_at)]
        kinds = ["documents", *["number"] * 4]
        labelled = zip(columns[2:], kinds, cells, strict=True)
        inside = "".join(
            f'<td data-label="{label}" class="{kind}"><span>{cell}</span></td>' for label, kind, cell in labelled
        )
        rows.append(f'<tr><th scope="row">Cycle {cycle.number}</th><td>{_badge(cycle.status)}</td>{inside}</tr>')
    headings = "".join(f'<th scope="col">{column}</th>' for column in columns)
    caption = "<caption>All cycles, the newest first: before, after mid-training, after distillation</caption>"
    note = '<p class="note">Scores before the cycle, after mid-training, after distillation.</p>'
    body = f"{caption}<thead><tr>{headings}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<section class="card"><h2>Cycles</h2>{note}<table class="cycles">{body}</table></section>'


EMPTY = """<section class="empty"><h1>No cycle on record yet</h1>
<p>See the whole job on the built-in model, without a GPU or a network:</p><pre>recover demo</pre>
<p>Or teach the current model your own documents:</p><pre>recover midtrain --docs ./corpus</pre>
<p>This page fills by itself as soon as a cycle begins.</p></section>"""


def _share(trail: Trail, axis: Axis, of: str) -> tuple[str, str]:
    """What distillation left of mid-training's damage undone, or of its teaching kept."""
    marks = [trail.start, trail.damaged, trail.recovered]
    start, middle, end = (mark.level(axis) if mark else None for mark in marks)
    part = story.share(start, middle, end) if axis == "behaviour" else story.share(middle, start, end)
    if part is None or start is None or middle is None:
        return "–", "not measured yet"
    return f"{part:.0%}".replace("%", " %"), f"{of}: {abs(start.value - middle.value):.2f}"


def _steps(trail: Trail, axis: Axis) -> str:
    return ' <span class="arrow">→</span> '.join(story.way(trail, axis)) or "not measured"


def _badge(status: str) -> str:
    icon = f'<span aria-hidden="true">{ICONS.get(status, "●")}</span>'
    return f'<span class="badge {status}">{icon}{status.capitalize()}</span>'


def _documents(cycle: Cycle, root: str) -> str:
    """Where they lay, from the project's folder where that is shorter."""
    path = PurePath(cycle.documents or "unknown")
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _title(project: Project) -> str:
    return f"{project.name} · base {project.base}"


def _clock(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def _capital(text: str) -> str:
    return text.replace("<bdi>", "", 1)[:1].upper() + text.replace("<bdi>", "", 1)[1:].replace("</bdi>", "").rstrip(".")
