"""The tree of all checkpoints: a line to the current one, branches for those that were rolled back."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages.cycle_summary import against_gate
from dashboard.pages.forms import note_form, notes_card, promotion_form
from dashboard.ui.html import bdi, card, clock, code, join, link, load, nothing, page_title, size
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.headline_scores import MEASURES
from db.tables import Checkpoint, Stage

ROW, NARROW_ROW = 52, 88  # pixels between two checkpoints; a phone needs three lines for the scores
LANE = 18  # pixels between two branches
MAX_LANE = 6
GRAPH_NOTE = (
    "Newest first. The solid line leads to the current checkpoint. Select a checkpoint to see details and write notes."
)
_html = load("lineage.html")


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    parts = [gr.HTML(), gr.HTML(elem_id="lineage"), gr.HTML(elem_id="notes")]
    parts += [note_form(dashboard, _subject), promotion_form(dashboard, _subject)]
    poll(app, dashboard, "lineage", parts, render)


def render(request: PageRequest) -> list[Any]:
    reader, project = request.reader, request.project
    stages = reader.stages(project.id)
    if not stages:
        raise NotFound
    current = reader.current(project.id)
    selected = _selected(request, [stage.checkpoint for stage in stages if stage.checkpoint])
    notes = reader.notes(project.id)
    noted = {note.checkpoint_id for note in notes if note.checkpoint_id}
    outcomes = {decision.checkpoint_id: decision.outcome for decision in reversed(reader.promotions(project.id))}
    own_notes = [note for note in notes if selected and note.checkpoint_id == selected.id]
    row = NARROW_ROW if request.look.narrow else ROW
    may_note = selected is not None and request.actions.add_note is not None
    may_decide = selected is not None and request.actions.decide is not None and selected != current
    return [
        page_title("Lineage") + (_details(request, selected) if selected else Markup()),
        card("Checkpoints", graph(stages, current, selected, noted, outcomes, row), GRAPH_NOTE),
        notes_card(own_notes) if selected else None,
        gr.update(visible=may_note),
        gr.update(visible=may_decide),
    ]


def graph(
    stages: Sequence[Stage],
    current: Checkpoint | None,
    selected: Checkpoint | None,
    noted: set[int],
    outcomes: Mapping[int, str],
    row: int,
) -> Markup:
    """`noted`: checkpoints with notes; `outcomes`: of the last decision on each; `row`: height in pixels."""
    checkpoints = [stage.checkpoint for stage in stages if stage.checkpoint]
    lanes = lanes_of(checkpoints, current)
    newest_first = list(reversed(checkpoints))
    heights = {checkpoint.id: row * index + row // 2 for index, checkpoint in enumerate(newest_first)}
    scores = {stage.checkpoint.id: _scores(stage) for stage in stages if stage.checkpoint}
    return _html.graph(
        width=LANE * (max(lanes.values(), default=0) + 1) + 8,
        row=row,
        lines=[
            (_line(checkpoint, lanes, heights, row), _css(checkpoint, lanes))
            for checkpoint in newest_first
            if checkpoint.parent_id in heights
        ],
        dots=[
            (_x(lanes[checkpoint.id]), heights[checkpoint.id], _css(checkpoint, lanes)) for checkpoint in newest_first
        ],
        names=MEASURES,
        rows=[
            (checkpoint, scores[checkpoint.id], _badges(checkpoint, current, noted, outcomes), checkpoint == selected)
            for checkpoint in newest_first
        ],
    )


def lanes_of(checkpoints: Sequence[Checkpoint], current: Checkpoint | None) -> dict[int, int]:
    """The column of each checkpoint: the first for the ancestors of the current one, others for branches."""
    by_id = {checkpoint.id: checkpoint for checkpoint in checkpoints}
    lanes: dict[int, int] = {}
    ancestor = by_id.get(current.id) if current else None
    while ancestor is not None and ancestor.id not in lanes:
        lanes[ancestor.id] = 0
        ancestor = by_id.get(ancestor.parent_id) if ancestor.parent_id is not None else None
    rows = {checkpoint.id: row for row, checkpoint in enumerate(checkpoints)}
    last_rows = dict.fromkeys(range(1, MAX_LANE + 1), -1)  # by lane, the last row that its line passes
    for checkpoint in checkpoints:
        if checkpoint.id in lanes:
            continue
        parent_lane = lanes.get(checkpoint.parent_id, 0) if checkpoint.parent_id is not None else 0
        # A branch stays in its parent's lane while the parent's line ends there.
        continues = parent_lane > 0 and last_rows[parent_lane] == rows[checkpoint.parent_id or 0]
        start = rows[checkpoint.id] if checkpoint.parent_id is None else rows.get(checkpoint.parent_id, 0)
        free = next((lane for lane, last in last_rows.items() if last <= start), MAX_LANE)
        lanes[checkpoint.id] = parent_lane if continues else free
        last_rows[lanes[checkpoint.id]] = rows[checkpoint.id]
    return lanes


def _selected(request: PageRequest, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    if "checkpoint" not in request.query:
        return None
    selected = next((checkpoint for checkpoint in checkpoints if checkpoint.id == request.number("checkpoint")), None)
    if selected is None:
        raise NotFound("There is no such checkpoint", link=link("lineage", "All checkpoints"))
    return selected


def _subject(request: PageRequest) -> tuple[int | None, int | None]:
    selected = _selected(request, request.reader.checkpoints(request.project.id))
    return None, selected.id if selected else None


def _details(request: PageRequest, checkpoint: Checkpoint) -> Markup:
    run = request.reader.run(checkpoint.run_id) if checkpoint.run_id is not None else None
    base = request.reader.base(request.project.id)
    ancestors = [
        link("lineage", bdi(other.reference, 60), checkpoint=other.id)
        for other in request.reader.lineage(checkpoint.id)
    ]
    steps = f", {checkpoint.step} steps" if checkpoint.step else ""
    deleted = f", deleted {clock(checkpoint.deleted_at)}" if checkpoint.deleted_at else ""
    facts = [
        ("Ancestors", join(ancestors, " ← ")),
        ("Created", clock(checkpoint.created_at) + (f" by run {run.id} ({run.kind})" if run else "")),
        ("Weights", join([bdi(checkpoint.kind), f", {size(checkpoint.bytes)}", steps, deleted])),
        ("Folder", code(checkpoint.path, 500)),
        ("Hash", code(checkpoint.hash or "–", 80)),
        ("Code", code(run.code_version, 80) if run else nothing()),
    ]
    if overruled := against_gate(request.reader.promotions(request.project.id), checkpoint):
        facts.insert(0, ("Decision", overruled))
    links = [link("cycle", f"Cycle {checkpoint.cycle}", number=checkpoint.cycle)] if checkpoint.cycle else []
    if base and base != checkpoint:
        links.append(link("compare", "Compare with the clean model", a=base.id, b=checkpoint.id))
    links.append(link("lineage", "All checkpoints"))
    return card(bdi(checkpoint.reference, 200), _html.details(facts, links))


def _badges(
    checkpoint: Checkpoint, current: Checkpoint | None, noted: set[int], outcomes: Mapping[int, str]
) -> list[tuple[str, str]]:
    """Status and label of each badge; without a label it is the status."""
    outcome = outcomes.get(checkpoint.id) if checkpoint.role == "recovered" else None
    implied = checkpoint == current and outcome == "promoted"  # "current" says it
    badges = [(outcome, "")] if outcome and not implied else []
    badges += [("promoted", "current")] if checkpoint == current else []
    return badges + ([("", "note")] if checkpoint.id in noted else [])


def _scores(stage: Stage) -> list[tuple[str, float]]:
    scores = {measure: stage.scores[measure].value for measure in MEASURES if measure in stage.scores}
    return [(measure, value) for measure, value in scores.items() if value is not None]


def _line(checkpoint: Checkpoint, lanes: Mapping[int, int], heights: Mapping[int, int], row: int) -> str:
    """The SVG path from a checkpoint to its parent."""
    parent = checkpoint.parent_id or 0
    x, y, parent_x, end = _x(lanes[checkpoint.id]), heights[checkpoint.id], _x(lanes[parent]), heights[parent]
    bend = f"V{end - row // 2} C{x} {end - row // 4} {parent_x} {end - row // 4} {parent_x} {end}"
    return f"M{x} {y} {bend if x != parent_x else f'V{end}'}"


def _css(checkpoint: Checkpoint, lanes: Mapping[int, int]) -> str:
    return checkpoint.role + ("" if lanes[checkpoint.id] == 0 else " aside")


def _x(lane: int) -> int:
    return LANE * lane + LANE // 2 + 2
