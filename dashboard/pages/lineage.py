"""Where every checkpoint comes from: a line for what is in use, branches for what was tried and rolled back."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from dashboard.pages.notes import notes_of, taking_notes
from dashboard.pages.promotion_form import promoting
from dashboard.pages.verdict_text import badge_of
from dashboard.ui.components import NOTHING, card, clock, size
from dashboard.ui.layout import link, shown
from dashboard.ui.polling import Asked, NotThere, Site, follow
from db.views import Checkpoint, Cycle, Stage

ROW, LANE = 52, 18
"""Pixels between two checkpoints, and between two branches."""
LANES = 6
SUITES = {"behaviour": "follows", "knowledge": "knows", "retention": "retains"}


def page(app: gr.Blocks, site: Site) -> None:
    top, tree = gr.HTML(), gr.HTML(elem_id="lineage")
    notes = gr.HTML(elem_id="notes")
    noting, deciding = taking_notes(site, _about), promoting(site, _about)
    follow(app, site, "lineage", [top, tree, notes, noting, deciding], fill)


def fill(asked: Asked) -> list[Any]:
    stages = asked.reader.stages(asked.project.id)
    if not stages:
        raise NotThere
    current = asked.reader.current(asked.project.id)
    selected = _selected(asked, [stage.checkpoint for stage in stages if stage.checkpoint])
    notes = asked.reader.notes(asked.project.id)
    noted = {note.checkpoint_id for note in notes if note.checkpoint_id}
    cycles = asked.reader.cycles(asked.project.id)
    ended = {cycle.recovered.checkpoint.id: cycle for cycle in cycles if cycle.recovered.checkpoint}
    drawn = graph(stages, current, selected, noted, ended)
    about = [note for note in notes if selected and note.checkpoint_id == selected.id]
    may_note = selected is not None and asked.actions.note is not None
    may_decide = selected is not None and asked.actions.promote is not None and selected != current
    return [
        '<section class="section"><h1>Lineage</h1></section>' + (_details(asked, selected) if selected else ""),
        card(
            "Checkpoints",
            drawn,
            "The newest on top; the line in strength is what is in use. Choose one to see more and to write about it.",
        ),
        notes_of(about) if selected else None,
        gr.update(visible=may_note),
        gr.update(visible=may_decide),
    ]


def graph(
    stages: Sequence[Stage],
    current: Checkpoint | None,
    selected: Checkpoint | None,
    noted: set[int],
    ended: Mapping[int, Cycle],
) -> str:
    """One row a checkpoint, as version control shows commits."""
    checkpoints = [stage.checkpoint for stage in stages if stage.checkpoint]
    lanes = lanes_of(checkpoints, current)
    newest_first = list(reversed(checkpoints))
    heights = {one.id: ROW * place + ROW // 2 for place, one in enumerate(newest_first)}
    scores = {stage.checkpoint.id: stage.scores for stage in stages if stage.checkpoint}
    width = LANE * (max(lanes.values(), default=0) + 1) + 8
    lines = "".join(
        _line(one, lanes, heights) for one in newest_first if one.parent_id in heights and one.parent_id is not None
    )
    dots = "".join(
        f'<circle cx="{_x(lanes[one.id])}" cy="{heights[one.id]}" r="6" class="{one.role}{_strength(lanes[one.id])}"/>'
        for one in newest_first
    )
    rows = "".join(
        _row(one, scores[one.id], _marks(one, current, noted, ended), one == selected) for one in newest_first
    )
    drawing = f'<svg width="{width}" height="{ROW * len(newest_first)}" aria-hidden="true">{lines}{dots}</svg>'
    return f'<div class="lineage">{drawing}<ol>{rows}</ol></div>'


def lanes_of(checkpoints: Sequence[Checkpoint], current: Checkpoint | None) -> dict[int, int]:
    """The column each checkpoint is drawn in: the first for what led to the current one, others for branches."""
    by_id = {one.id: one for one in checkpoints}
    lanes: dict[int, int] = {}
    here = by_id.get(current.id) if current else None
    while here is not None and here.id not in lanes:
        lanes[here.id] = 0
        here = by_id.get(here.parent_id) if here.parent_id is not None else None
    rows = {one.id: row for row, one in enumerate(checkpoints)}
    taken = dict.fromkeys(range(1, LANES + 1), -1)  # by lane, the last row that its line passes
    for one in checkpoints:
        if one.id in lanes:
            continue
        above = lanes.get(one.parent_id, 0) if one.parent_id is not None else 0
        grows = above > 0 and taken[above] == rows[one.parent_id or 0]  # its parent's line ends there
        begin = rows[one.id] if one.parent_id is None else rows.get(one.parent_id, 0)
        free = next((lane for lane, last in taken.items() if last <= begin), LANES)
        lanes[one.id] = above if grows else free
        taken[lanes[one.id]] = rows[one.id]
    return lanes


def _selected(asked: Asked, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    if "checkpoint" not in asked.query:
        return None
    found = next((one for one in checkpoints if one.id == asked.number("checkpoint")), None)
    if found is None:
        raise NotThere(f"<h1>There is no such checkpoint</h1><p>{link('lineage', 'All checkpoints')}</p>")
    return found


def _about(asked: Asked) -> tuple[int | None, int | None]:
    selected = _selected(asked, asked.reader.checkpoints(asked.project.id))
    return None, selected.id if selected else None


def _details(asked: Asked, one: Checkpoint) -> str:
    run = asked.reader.run(one.run_id) if one.run_id is not None else None
    base = asked.reader.base(asked.project.id)
    line = " ← ".join(
        link("lineage", shown(each.reference, 60), checkpoint=each.id) for each in asked.reader.lineage(one.id)
    )
    facts: Mapping[str, str] = {
        "Descends": line,
        "Made": clock(one.created_at) + (f" by run {run.id} ({run.kind})" if run else ""),
        "Weights": f"{shown(one.kind)}, {size(one.bytes)}" + (f", {one.step} steps" if one.step else ""),
        "Folder": f"<code>{shown(one.path, 500)}</code>",
        "Hash": f"<code>{shown(one.hash or '–', 80)}</code>",
        "Code": f"<code>{shown(run.code_version, 80)}</code>" if run else NOTHING,
    }
    inside = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    ways = [link("cycle", f"Cycle {one.cycle}", number=one.cycle)] if one.cycle else []
    if base and base != one:
        ways.append(link("compare", "Compare with the clean model", a=base.id, b=one.id))
    ways.append(link("lineage", "All checkpoints"))
    return card(shown(one.reference, 200), f'<dl class="facts">{inside}</dl><p class="ways">{" · ".join(ways)}</p>')


def _marks(one: Checkpoint, current: Checkpoint | None, noted: set[int], ended: Mapping[int, Cycle]) -> str:
    silent = ("open", "promoted") if one == current else ("open",)  # what is current was promoted: one badge says it
    marks = [badge_of(ended[one.id])] if one.id in ended and ended[one.id].status not in silent else []
    marks += ['<span class="badge promoted">current</span>'] if one == current else []
    marks += ['<span class="badge">note</span>'] if one.id in noted else []
    return " ".join(marks)


def _row(one: Checkpoint, scores: Mapping[str, Any], marks: str, is_selected: bool) -> str:
    told = " ".join(
        f'<span class="{suite}">{SUITES.get(suite, suite)} {score.value:.3f}</span>'
        for suite, score in sorted(scores.items())
        if score.value is not None
    )
    here = ' aria-current="true"' if is_selected else ""
    name = link("lineage", shown(one.reference, 80), checkpoint=one.id)
    return (
        f'<li{here}><span class="name">{name} {marks}</span><span class="scores">{told or "not measured"}</span></li>'
    )


def _line(one: Checkpoint, lanes: Mapping[int, int], heights: Mapping[int, int]) -> str:
    x, y, up = _x(lanes[one.id]), heights[one.id], _x(lanes[one.parent_id or 0])
    end = heights[one.parent_id or 0]
    bend = f"V{end - ROW // 2} C{x} {end - ROW // 4} {up} {end - ROW // 4} {up} {end}" if x != up else f"V{end}"
    return f'<path d="M{x} {y} {bend}" class="{one.role}{_strength(lanes[one.id])}"/>'


def _strength(lane: int) -> str:
    return "" if lane == 0 else " aside"


def _x(lane: int) -> int:
    return LANE * lane + LANE // 2 + 2
