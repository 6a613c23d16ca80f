"""The overview: was the last cycle good, and why; what was learned, forgotten and brought back so far."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.pages import score_summaries as story
from dashboard.pages.cycles import table_of
from dashboard.pages.repairs import repairs
from dashboard.pages.verdict_text import badge_of, followed, reasons
from dashboard.ui import charts
from dashboard.ui.chart_embed import chart
from dashboard.ui.charts import Axis, Trail
from dashboard.ui.components import DOING, clock, duration, save_buttons, stale
from dashboard.ui.layout import link, shown
from dashboard.ui.polling import Asked, NotThere, Site, follow
from dashboard.ui.run_metrics import Numbers
from db.queries import Reader
from db.views import Checkpoint, Cycle, Project, Promotion, Run

ITEMS: dict[Axis, str] = {"behaviour": "instruction prompts", "knowledge": "questions on the documents"}
OF_TASK = {"cloze": "names and numbers in the documents"}
"""What is asked in a suite's place, where nobody brought questions."""
NEWEST = 12
"""Cycles in the table here; the others are a click away."""

OVER_TIME = f"""<h2>Over the cycles</h2><p class="note"><span class="key knowledge"></span>mid-training
<span class="key behaviour"></span>distillation <span class="key dotted"></span>clean model
<span class="key gate"></span>the gate: a cycle must end above it, in behaviour with 95 % certainty ·
hollow: not promoted · knowledge: of each cycle's own documents ·
bars: 95 % intervals</p>{save_buttons("over-the-cycles", "png", "svg")}"""
PLANE = f"""<h2>Knowledge against behaviour</h2><p class="note">To the right: knows more. Up: follows better.
<span class="key goal"></span>where the gate wants it to be; to be certain takes
some distance from the edge. Older cycles are faint.</p>
{save_buttons("plane", "png", "svg")}"""


def page(app: gr.Blocks, site: Site) -> None:
    top = gr.HTML(elem_id="summary")
    with gr.Row(visible=False, elem_id="charts") as row:
        with gr.Column(scale=3, min_width=340, elem_classes="card"):
            gr.HTML(OVER_TIME)
            over_time = gr.HTML(elem_id="over-time")
        with gr.Column(scale=2, min_width=340, elem_classes="card"):
            gr.HTML(PLANE)
            plane = gr.HTML(elem_id="plane")
    table = gr.HTML(elem_id="cycles")
    follow(app, site, "", [top, row, over_time, plane, table], fill)


def fill(asked: Asked) -> list[Any]:
    reader, project = asked.reader, asked.project
    cycles = reader.cycles(project.id)
    if not cycles:
        return _without_cycles(asked)
    runs, clean = reader.runs(project.id), story.clean_mark(cycles)
    trails = story.trails(cycles, reader.stages(project.id))
    figures = {"over-time": charts.over_time, "plane": charts.plane}
    drawn = [chart(name, figure(trails, clean, asked.look)) for name, figure in figures.items()]
    listed = table_of(cycles[-NEWEST:], trails[-NEWEST:], runs, asked.numbers, project.root)
    more = f"<p>{link('cycles', f'All {len(cycles)} cycles')}</p>" if len(cycles) > NEWEST else ""
    top = summary(reader, project, cycles[-1], trails[-1], clean, runs, asked.numbers, ended(cycles, trails))
    return [top, gr.update(visible=True), *drawn, f'<section class="card"><h2>Cycles</h2>{listed}{more}</section>']


def _without_cycles(asked: Asked) -> list[Any]:
    told = repairs(asked)
    if not told:
        raise NotThere
    top, decisions = told
    return [top, gr.update(visible=False), None, None, decisions]


def summary(
    reader: Reader,
    project: Project,
    cycle: Cycle,
    trail: Trail,
    clean: charts.Mark | None,
    runs: Sequence[Run],
    numbers: Numbers,
    before: str = "",
) -> str:
    """A cycle in one sentence and five numbers; `before` is what is to be said of the one before it."""
    current, promotions, lost = reader.current(project.id), reader.promotions(project.id), forgotten(reader, cycle)
    of_cycle = [run for run in runs if run.cycle == cycle.number]
    return (
        verdict(cycle, trail, clean, runs)
        + before
        + tiles(cycle, trail, story.cost(cycle, runs, numbers.worked(of_cycle)), current, promotions, lost)
    )


def verdict(cycle: Cycle, trail: Trail, clean: charts.Mark | None, runs: Sequence[Run]) -> str:
    opening, pieces = story.headline(trail, clean)
    colored = [
        f'<span class="{axis}">{words} <b>{numbers}</b></span>{beside}' for axis, words, numbers, beside in pieces
    ]
    sentence = opening + (": " + ", ".join(colored) if colored else "") + "."
    said = [_scale(cycle), reasons(cycle)]
    running = [run for run in runs if run.status == "running"]
    said += [f"<p>{_going_on(run)}</p>" for run in running]
    if cycle.status == "open" and all(stale(run) for run in running):
        said.append(f"<p>Run next: <code>{_following(cycle, trail, runs)}</code></p>")
    came_of = f' <span class="settles {cycle.outcome}">{followed(cycle)}</span>' if followed(cycle) else ""
    return f'<section class="verdict">{badge_of(cycle)}{came_of}<h1>{sentence}</h1>{"".join(said)}</section>'


def _following(cycle: Cycle, trail: Trail, runs: Sequence[Run]) -> str:
    """What an open cycle waits for, while nothing goes on."""
    latest = max((run for run in runs if run.cycle == cycle.number), key=lambda run: run.id, default=None)
    if latest and latest.waits:  # it was stopped, failed, or fell silent
        return "recover resume"
    if trail.recovered:
        return f"recover promote cycle:{cycle.number}"  # or turn it down, with --reject
    return "recover distill --teacher base" if trail.damaged else "recover status"


def ended(cycles: Sequence[Cycle], trails: Sequence[Trail]) -> str:
    """While a cycle goes on, how the last one that ended did: whether that was good is asked meanwhile, too."""
    past = [row for row in zip(cycles, trails, strict=True) if row[0].status != "open"]
    if not past or cycles[-1].status != "open":
        return ""
    cycle, trail = past[-1]
    numbers = [f"{charts.NAMES[axis].lower()} {' → '.join(story.way(trail, axis))}" for axis in charts.NAMES]
    name = link("cycle", f"cycle {cycle.number}", number=cycle.number)
    said = f"The last to end, {name}: {badge_of(cycle)} {followed(cycle)}; {', '.join(numbers)}."
    return f'<section class="verdict before"><p>{said}</p>{reasons(cycle)}</section>'


def forgotten(reader: Reader, cycle: Cycle) -> tuple[int, int] | None:
    """Of the instructions that the clean model followed, how many the cycle's last checkpoint does not."""
    latest = []
    for stage in (cycle.clean, cycle.recovered if cycle.recovered.scores else cycle.damaged):
        headline = stage.scores.get("behaviour")
        if headline is None or stage.checkpoint is None:
            return None
        done = reader.evaluations(stage.checkpoint.id)
        of_task = [one for one in done if one.suite == "behaviour" and one.task == headline.task]
        latest.append(reader.passes(of_task[-1].id))
    return story.forgotten(*latest)


def tiles(
    cycle: Cycle,
    trail: Trail,
    spent: story.Cost,
    current: Checkpoint | None,
    promotions: Sequence[Promotion],
    lost: tuple[int, int] | None,
) -> str:
    made_current = (p for p in promotions if current and p.checkpoint_id == current.id and p.decision == "promoted")
    promoted = next(made_current, None)
    decided = f"promoted {clock(promoted.at)} by {shown(promoted.who, 40)}" if promoted else "the clean model"
    steps = ", ".join(f"{count} steps of {kind}" for kind, count in spent.steps.items())
    missing = (
        (str(lost[0]), f"of the {lost[1]} prompts the clean model followed") if lost else ("–", "not measured yet")
    )
    cells = [
        ("Current checkpoint", shown(current.reference.removesuffix("/recovered") if current else "none", 60), decided),
        (
            f"Damage undone by cycle {cycle.number}",
            *share_of(trail, "behaviour", "of the {:.3f} of instruction following lost"),
        ),
        (
            f"Knowledge kept by cycle {cycle.number}",
            *share_of(trail, "knowledge", "of the {:.3f} that mid-training added"),
        ),
        (f"Forgotten by cycle {cycle.number}", *missing),
        (f"Cost of cycle {cycle.number}", "–" if spent.time is None else duration(spent.time), _spent_on(steps)),
    ]
    inside = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{value}</dd><dd class="note">{note}</dd></div>'
        for name, value, note in cells
    )
    return f'<dl class="tiles">{inside}</dl>'


def _spent_on(steps: str) -> str:
    return f"what {steps} and the measurements took" if steps else "nothing trained yet"


def _scale(cycle: Cycle) -> str:
    """What the numbers of the sentence are, for somebody who sees them for the first time."""
    latest = (cycle.recovered if cycle.recovered.scores else cycle.damaged).scores
    asked = {axis: latest[axis].n for axis in charts.NAMES if axis in latest}
    of = " and ".join(f"{n:,} {OF_TASK.get(latest[axis].task, ITEMS[axis])}" for axis, n in asked.items())
    way = "before → after mid-training" + (" → after distillation" if cycle.recovered.scores else "")
    return f'<p class="scale-of">{way}, as shares of {of}.</p>' if asked else ""


def _going_on(run: Run) -> str:
    doing = DOING[run.kind]
    if stale(run):
        return f"{doing} was last heard of on {clock(run.heartbeat_at)}: its process seems to be gone."
    return f"{doing} has been running since {clock(run.started_at)}: {link('live', 'watch it')}."


def share_of(trail: Trail, axis: Axis, of: str) -> tuple[str, str]:
    """What distillation left of mid-training's damage undone, or of its teaching kept."""
    marks = [trail.start, trail.damaged, trail.recovered]
    start, middle, end = (mark.level(axis) if mark else None for mark in marks)
    part = story.share(start, middle, end) if axis == "behaviour" else story.share(middle, start, end)
    if start is None or middle is None or end is None:
        return "–", "not measured yet"
    if part is None or (axis == "behaviour" and middle.value > start.value):
        return "–", "nothing was lost" if axis == "behaviour" else "nothing was added"
    if axis == "behaviour" and start.low is not None and middle.value > start.low:
        return "–", f"{start.value - middle.value:.3f} lost, within chance"
    return f"{part:.0%}".replace("%", " %"), of.format(abs(start.value - middle.value))
