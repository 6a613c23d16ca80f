"""The overview: was the last cycle good, and why; what was learned, forgotten and recovered over all cycles."""

from collections.abc import Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages import cycle_summary as summaries
from dashboard.pages.compare import Shared, count_flips, on_shared_items
from dashboard.pages.cycle_list import cycle_table
from dashboard.pages.cycle_summary import against_gate, outcome_text
from dashboard.pages.repaired_models import repair_sections
from dashboard.ui.caches import RunMetrics
from dashboard.ui.charts.cycles import Mark, Trail, over_time, plane
from dashboard.ui.charts.figure import Axis
from dashboard.ui.html import STAGE_NAMES, bdi, card, chart, clock, duration, join, link, links, load, percent, tiles
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.headline_scores import MEASURES
from db.next_attempt import next_attempt
from db.queries import Reader
from db.tables import Checkpoint, Cycle, Project, Promotion, Run

ITEMS = {
    "behaviour": "instruction prompts",
    "knowledge": "questions about the documents",
    "earlier": "questions about earlier documents",
    "retention": "items on what it knew before",
}
ITEMS_BY_TASK = {  # where nobody wrote questions
    "cloze": "names and numbers from the documents",
    "answers": "answers of the conversations (likelihood)",
}
MAX_CYCLES = 12  # in the table; a link leads to the others
_html = load("overview.html")


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    top = gr.HTML(elem_id="summary")
    with gr.Row(visible=False, elem_id="charts") as row:
        with gr.Column(scale=3, min_width=340, elem_classes="card"):
            gr.HTML(str(_html.over_time_legend()))
            left = gr.HTML(elem_id="over-time")
        with gr.Column(scale=2, min_width=340, elem_classes="card"):
            gr.HTML(str(_html.plane_legend()))
            right = gr.HTML(elem_id="plane")
    table = gr.HTML(elem_id="cycles")
    poll(app, dashboard, "", [top, row, left, right, table], render)


def render(request: PageRequest) -> list[Any]:
    reader, project = request.reader, request.project
    cycles = reader.cycles(project.id)
    if not cycles:
        return _render_without_cycles(request)
    runs, clean = reader.runs(project.id), summaries.clean_mark(cycles[-1])
    trails = summaries.trails(cycles, reader.stages(project.id), reader.drift(project.id), reader.current(project.id))
    figures = {"over-time": over_time, "plane": plane}
    charts = [chart(name, figure(trails, clean, request.look)) for name, figure in figures.items()]
    rows = list(zip(cycles, trails, strict=True))[-MAX_CYCLES:]
    table = cycle_table(list(reversed(rows)), runs, request.metrics, project.root)
    more = links([link("cycles", f"All {len(cycles)} cycles")]) if len(cycles) > MAX_CYCLES else ""
    kept = [row for row in zip(cycles, trails, strict=True) if not row[0].is_discarded]
    cycle, trail = kept[-1] if kept else (cycles[-1], trails[-1])
    previous = last_finished(cycle, cycles, trails)
    top = summary(reader, project, cycle, trail, summaries.clean_mark(cycle), runs, request.metrics, previous)
    return [top, gr.update(visible=True), *charts, card("Cycles", join([table, more]))]


def _render_without_cycles(request: PageRequest) -> list[Any]:
    sections = repair_sections(request)
    if not sections:
        raise NotFound
    top, decisions = sections
    return [top, gr.update(visible=False), None, None, decisions]


def summary(
    reader: Reader,
    project: Project,
    cycle: Cycle,
    trail: Trail,
    clean: Mark | None,
    runs: Sequence[Run],
    metrics: RunMetrics,
    previous: Markup | str = "",
    is_last: bool = True,
) -> Markup:
    """A cycle in one sentence and five numbers; `previous` is the section on the cycle before."""
    cycle_runs = [run for run in runs if run.cycle == cycle.number]
    cost = summaries.cost(cycle, runs, metrics.work_seconds(cycle_runs))
    current, promotions = reader.current(project.id), reader.promotions(project.id)
    numbers = _tiles(reader, cycle, trail, cost, current, promotions)
    return join([verdict(cycle, trail, clean, runs, promotions, is_last), previous, numbers])


def verdict(
    cycle: Cycle,
    trail: Trail,
    clean: Mark | None,
    runs: Sequence[Run],
    decisions: Sequence[Promotion],
    is_last: bool = True,
) -> Markup:
    running = [run for run in runs if run.status == "running" and (run.cycle == cycle.number or not run.stale)]
    details = [summaries.measures(cycle, trail, clean), _scale(cycle, trail)]
    details.append(against_gate(decisions, cycle.recovered.checkpoint))
    details += [_html.run_status(run, STAGE_NAMES[run.kind]) for run in running]
    if cycle.status != "promoted" and all(run.stale for run in running):
        details.append(_next_step(cycle, trail, runs, decisions, is_last))
    return _html.verdict(cycle, summaries.headline(cycle), outcome_text(cycle), details)


def _next_step(
    cycle: Cycle, trail: Trail, runs: Sequence[Run], decisions: Sequence[Promotion], is_last: bool
) -> Markup:
    """The command that continues an open cycle while nothing is running, or tries a rejected one again."""
    latest = max((run for run in runs if run.cycle == cycle.number), key=lambda run: run.id, default=None)
    if latest and latest.resumable:  # it was stopped, failed, or its process ended
        is_overtaken = any(p.decision == "promoted" and p.at > latest.started_at for p in decisions)
        return _html.next_command("recover status" if is_overtaken else "recover resume")  # which says what it drops
    if cycle.status == "rejected":
        advice = next_attempt(cycle, runs, is_last)
        return _html.next_command(advice.command, advice.introduction) if advice else Markup()
    return _html.next_command("recover distill --teacher base" if trail.damaged else "recover status")


def last_finished(shown: Cycle, cycles: Sequence[Cycle], trails: Sequence[Trail]) -> Markup:
    """While the cycle shown is open: how the last finished one went."""
    finished = [row for row in zip(cycles, trails, strict=True) if row[0].status != "open"]
    if not finished or shown.status != "open":
        return Markup()
    cycle, trail = finished[-1]
    return _html.last_finished(
        cycle, outcome_text(cycle), summaries.measures(cycle, trail, summaries.clean_mark(cycle))
    )


def count_forgotten(reader: Reader, cycle: Cycle) -> tuple[int, int] | None:
    """Of the prompts that the clean model followed and both answered: how many the cycle's last checkpoint does not
    follow, and how many there are."""
    stages = (cycle.clean, cycle.last_measured)
    shared = on_shared_items(reader, [summaries.level_of(stage.scores.get("behaviour")) for stage in stages])
    if shared is None or not shared.passes:
        return None
    clean, now = shared.passes
    followed = [key for key, passed in clean.items() if passed]
    return sum(not now[key] for key in followed), len(followed)


def _tiles(
    reader: Reader,
    cycle: Cycle,
    trail: Trail,
    cost: summaries.Cost,
    current: Checkpoint | None,
    promotions: Sequence[Promotion],
) -> Markup:
    forgotten = count_forgotten(reader, cycle)
    not_measured = ("–", "not measured yet" if cycle.outcome == "open" else "not measured")
    decisions = (p for p in promotions if current and p.checkpoint_id == current.id and p.decision == "promoted")
    promotion = next(decisions, None)
    origin = join([f"promoted {clock(promotion.at)} by ", bdi(promotion.who, 40)]) if promotion else "the clean model"
    origin = against_gate(promotions, current) or origin
    name = bdi(current.reference.removesuffix("/recovered") if current else "none", 60)
    lost = (forgotten[0], f"of the {forgotten[1]} prompts the clean model followed") if forgotten else not_measured
    steps = ", ".join(f"{count} steps of {stage}" for stage, count in cost.steps.items())
    work = f"{steps}, and evaluations" if steps else "no training yet"
    regained = recovery_tile(reader, trail, "behaviour", "of the {:.3f} instruction following lost in mid-training")
    retained = retained_tile(reader, trail, cycle)
    learned = recovery_tile(reader, trail, "knowledge", "of the {:.3f} gained in mid-training")
    return tiles(
        [
            ("Current checkpoint", name, origin),
            (f"Recovered in cycle {cycle.number}", *(regained or not_measured)),
            (f"New knowledge kept in cycle {cycle.number}", *(learned or not_measured)),
            (f"Kept in cycle {cycle.number} of what it knew before", *(retained or not_measured)),
            (f"Forgotten after cycle {cycle.number}", *lost),
            (f"Time of cycle {cycle.number}", "–" if cost.time is None else duration(cost.time), work),
        ]
    )


def retained_tile(reader: Reader, trail: Trail, cycle: Cycle) -> tuple[str, str] | None:
    """What the cycle's last checkpoint still knows of what the clean model knew; None if that was not measured."""
    clean, last = cycle.clean.scores.get("retention"), trail.marks[-1].level("retention")
    if clean is None or not clean.value or last is None or trail.marks[-1] is trail.start:
        return None
    if clean.is_of_one_task:
        shared = on_shared_items(reader, [summaries.level_of(clean), last])
    else:
        shared = Shared([clean.value, last.value], [], None) if clean.items == last.items else None
    if shared is None:
        return "–", "not measured on the same items"
    before, after = shared.values
    items = f", on the {shared.n:,} items that both answered" if shared.n else ""
    if not before:
        return "–", f"the clean model knew nothing{items}"
    return percent(after / before), f"{after:.3f} of the clean model's {before:.3f}{items}"


def _scale(cycle: Cycle, trail: Trail) -> Markup:
    """What the values in the title are, and of how many items each where the checkpoints answered different numbers."""
    latest = cycle.last_measured.scores
    scores = {measure: latest[measure] for measure in MEASURES if measure in latest}
    if not scores:
        return Markup()
    likelihoods: list[str] = []
    counts: list[str] = []
    for measure, score in scores.items():
        asked = [f"{level.n:,}" for mark in trail.marks if (level := mark.level(measure))]
        number = " → ".join(asked) if len(set(asked)) > 1 else f"{score.n:,}"
        (likelihoods if score.task == "answers" else counts).append(
            f"{number} {ITEMS_BY_TASK.get(score.task, ITEMS[measure])}"
        )
    stages = "Before → after mid-training" + (" → after distillation" if cycle.recovered.scores else "")
    shares = " and ".join(filter(None, [", ".join(counts[:-1]), *counts[-1:]]))
    return _html.scale("; ".join(filter(None, [stages, shares and f"shares of {shares}", *likelihoods])))


def recovery_tile(reader: Reader, trail: Trail, axis: Axis, note: str) -> tuple[str, str] | None:
    """How much distillation recovered of the behaviour that mid-training cost, or left of the knowledge it added."""
    levels = [mark.level(axis) if mark else None for mark in (trail.start, trail.damaged, trail.recovered)]
    if None in levels:
        return None
    if (shared := on_shared_items(reader, levels)) is None:
        return "–", "not measured on the same items"
    start, middle, end = shared.values
    note += f", on the {shared.n:,} items that all three answered" if shared.n else ""
    if axis == "knowledge":
        gained = middle - start
        if gained <= 0:
            return "–", "mid-training added nothing"
        return percent((end - start) / gained), note.format(gained)
    lost = start - middle
    if lost <= 0:
        return "nothing lost", "by mid-training"
    low = levels[0].low if levels[0] else None
    if not count_flips(*shared.passes[:2]).shows_loss if shared.passes else low is not None and middle > low:
        return "–", f"{lost:.3f} lost, within the confidence interval"
    return percent((end - middle) / lost), note.format(lost)
