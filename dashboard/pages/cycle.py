"""One cycle from its documents to its verdict: stages, curves, the gate, what it changed, what people said."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.pages import cycle_sections as parts
from dashboard.pages import score_summaries as story
from dashboard.pages.notes import notes_of, taking_notes
from dashboard.pages.overview import verdict
from dashboard.pages.promotion_form import promoting
from dashboard.pages.repairs import no_cycle
from dashboard.ui.chart_embed import framed
from dashboard.ui.charts import Axis, Figure
from dashboard.ui.components import DOING, choice, form, save_buttons
from dashboard.ui.layout import link
from dashboard.ui.polling import Asked, NotThere, Site, changes, follow
from dashboard.ui.training_curves import Run as Curves
from dashboard.ui.training_curves import curves, meanings
from db.views import Cycle, Run

BRINGS: dict[str, Axis] = {"midtrain": "knowledge", "distill": "behaviour"}
SMOOTHING = {"": 0.0, "some": 0.8, "much": 0.95}
SCALES = [("", "linear"), ("log", "logarithmic")]


def page(app: gr.Blocks, site: Site) -> None:
    top, stages = gr.HTML(), gr.HTML(elem_id="stages")
    asking = gr.HTML()
    drawn = gr.HTML(elem_id="curves")
    rest, notes = gr.HTML(elem_id="details"), gr.HTML(elem_id="notes")
    noting, deciding = taking_notes(site, _about), promoting(site, _about)
    follow(app, site, "cycle", [top, stages, asking, drawn, rest, notes, noting, deciding], fill, mark)


def mark(asked: Asked) -> Any:
    """A cycle that goes on has new steps to draw before anything else about it changes."""
    running = [run for run in asked.reader.runs(asked.project.id) if run.status == "running"]
    return changes(asked), [asked.reader.last_step(run.id) for run in running]


def fill(asked: Asked) -> list[Any]:
    cycles = asked.reader.cycles(asked.project.id)
    cycle = chosen(asked, cycles)
    trail = story.trails(cycles, asked.reader.stages(asked.project.id))[cycles.index(cycle)]
    runs = asked.reader.runs(asked.project.id)
    own = [run for run in reversed(runs) if run.cycle == cycle.number]
    training = [run for run in own if run.kind in BRINGS]
    smoothing = asked.query.get("smoothing", "")
    log = asked.query.get("scale") == "log"
    figure = curves([_told(asked, run) for run in training], asked.look, SMOOTHING.get(smoothing, 0.0), log)
    fields = choice("smoothing", "Smoothing", [(name, name or "none") for name in SMOOTHING], smoothing)
    fields += choice("scale", "Scale", SCALES, "log" if log else "")
    measured = parts.measured_in(asked.reader, cycle, own)
    before = next((one for one in reversed(cycles) if one.number < cycle.number), None)
    earlier = [run for run in runs if before and run.cycle == before.number and run.kind in BRINGS]
    return [
        _ways(cycle, cycles) + verdict(cycle, trail, story.clean_mark(cycles[: cycles.index(cycle) + 1]), own),
        parts.timeline(own, asked.reader.promotions(asked.project.id), cycle),
        _curves_head(form(fields, hidden={"number": cycle.number}), figure) if figure else None,
        framed("curves", figure) if figure else None,
        parts.gate(cycle)
        + parts.measurements(measured, cycle)
        + parts.earlier(measured, cycle, cycles)
        + parts.kinds(measured, cycle)
        + parts.settings(training, earlier, before)
        + parts.documents(asked.reader, cycle, asked.project.root),
        notes_of(asked.reader.notes(asked.project.id, cycle=cycle.id)),
        gr.update(visible=asked.actions.note is not None),
        gr.update(visible=asked.actions.promote is not None and _may_decide(asked, cycle)),
    ]


def chosen(asked: Asked, cycles: Sequence[Cycle]) -> Cycle:
    """The one in the address, or else the latest."""
    number = asked.number("number")
    if not cycles:
        raise no_cycle(asked)
    if "number" not in asked.query:
        return cycles[-1]
    found = next((cycle for cycle in cycles if cycle.number == number), None)
    if found is None:
        raise NotThere(f"<h1>There is no such cycle</h1><p>{link('cycles', 'All cycles')}</p>")
    return found


def _may_decide(asked: Asked, cycle: Cycle) -> bool:
    """What is in use already is neither promoted nor rejected: a person goes back from it."""
    made = cycle.recovered.checkpoint
    return made is not None and made != asked.reader.current(asked.project.id)


def _about(asked: Asked) -> tuple[int | None, int | None]:
    """What notes and decisions on this page are about: the cycle, and the checkpoint it ended with."""
    cycle = chosen(asked, asked.reader.cycles(asked.project.id))
    return cycle.id, cycle.recovered.checkpoint.id if cycle.recovered.checkpoint else None


def _told(asked: Asked, run: Run) -> Curves:
    return Curves(DOING[run.kind], BRINGS[run.kind], asked.numbers.of(run.id))


def _ways(cycle: Cycle, cycles: Sequence[Cycle]) -> str:
    numbers = [one.number for one in cycles]
    place = numbers.index(cycle.number)
    ways = [link("cycles", "All cycles")]
    if place > 0:
        ways.append(link("cycle", f"← Cycle {numbers[place - 1]}", number=numbers[place - 1]))
    if place + 1 < len(numbers):
        ways.append(link("cycle", f"Cycle {numbers[place + 1]} →", number=numbers[place + 1]))
    ends = [stage.checkpoint.id for stage in (cycle.clean, cycle.recovered) if stage.checkpoint]
    if len(ends) == 2:
        ways.append(link("compare", "Compare with the clean model", a=ends[0], b=ends[1]))
    return f'<p class="ways">{" · ".join(ways)}</p>'


def _curves_head(asking: str, figure: Figure) -> str:
    saving = save_buttons("curves", "png", "svg", of="#curves")
    keys = '<span class="key knowledge"></span>mid-training <span class="key behaviour"></span>distillation'
    note = f"{keys} · by optimiser step"
    explained = "".join(f"<div><dt>{name}</dt><dd>{meaning}</dd></div>" for name, meaning in meanings(figure))
    asking += f'<details><summary>What the curves say</summary><dl class="facts wide">{explained}</dl></details>'
    return f'<section class="section"><h2>Curves</h2><p class="note">{note}</p>{saving}{asking}</section>'
