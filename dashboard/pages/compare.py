"""Checkpoints side by side: scores with what chance could have done, and the same prompts with both answers."""

from collections.abc import Sequence
from shlex import quote
from typing import Any, NamedTuple

import gradio as gr

from dashboard.pages.answer_diff import Flips, flips, instructions, is_kind, kinds_of, marked, matches
from dashboard.ui.components import NOTHING, Cell, card, choice, clock, form, number, table, tick, words
from dashboard.ui.layout import link, plain, shown
from dashboard.ui.polling import Asked, NotThere, Site, follow
from db.headlines import headline
from db.views import Checkpoint, Evaluation, Item

PLACES = ("a", "b", "c", "d")
ASKED = (*PLACES, "task", "show", "kind", "text")
"""What an address may ask of this page, besides which page of the answers; nothing else is handed on."""
A_PAGE = 15
TRYABLE = 1500
"""Characters of a prompt that still fit into an address."""
NEWEST = 4
"""Checkpoints that are named where two have to be measured first."""
CHOOSE = "<p>Choose two of them.</p>"
TEACH = """<p>There is nothing to compare the clean model with yet. Teach it your documents:</p>
<pre>recover cycle --docs ./corpus</pre>"""
SHOW = [("", "all items"), ("flipped", "flipped"), ("lost", "lost: passed, then failed"), ("gained", "gained")]


Task = tuple[str, str, str]
"""Suite, task, data: measurements that agree in these asked alike."""


class Side(NamedTuple):
    checkpoint: Checkpoint
    evaluations: dict[Task, Evaluation]


def page(app: gr.Blocks, site: Site) -> None:
    follow(app, site, "compare", [gr.HTML(), gr.HTML(elem_id="scores"), gr.HTML(elem_id="answers")], fill)


def fill(asked: Asked) -> list[Any]:
    stages = asked.reader.stages(asked.project.id)
    measured = [stage.checkpoint for stage in stages if stage.scores and stage.checkpoint]
    sides = _sides(asked, measured)
    unmeasured = [stage.checkpoint for stage in stages if stage.checkpoint and not stage.scores]
    needed = _needed(asked, measured, unmeasured)
    if not measured:
        raise NotThere(f"<h1>Nothing to compare yet</h1>{needed or TEACH}")
    too_few = len(sides) < 2
    if too_few and not needed:
        needed = CHOOSE if len(measured) > 1 else TEACH
    told = f'<section class="empty">{needed}</section>' if needed else ""
    if too_few:
        return [_asking(asked, measured, sides, [], None) + told, None, None]
    first, *_ = sides
    tasks = sorted(key for key in first.evaluations if any(key in side.evaluations for side in sides[1:]))
    task = _task(asked, tasks)
    body = _answers(asked, sides, task) if task else card("Answers", '<p class="nothing">No task in common.</p>')
    return [_asking(asked, measured, sides, tasks, task) + told, _scores(asked, sides, tasks), body]


def _sides(asked: Asked, measured: Sequence[Checkpoint]) -> list[Side]:
    """Those in the address; without any, the clean model and the latest that was measured."""
    known = {checkpoint.id: checkpoint for checkpoint in measured}
    chosen = [asked.number(place) for place in PLACES]
    found = [known[id] for id in dict.fromkeys(chosen) if id in known]
    if not any(asked.query.get(place) for place in PLACES):
        found = list(dict.fromkeys([*measured[:1], *measured[-1:]]))
    own = {run.id for run in asked.reader.runs(asked.project.id) if run.cycle in {one.cycle for one in found}}
    return [Side(one, _latest(asked, one, own)) for one in found]


def _needed(asked: Asked, measured: Sequence[Checkpoint], unmeasured: Sequence[Checkpoint]) -> str:
    """What has to be measured first: of what the address names or, where there are no two to compare, of the newest."""
    chosen = [asked.number(place) for place in PLACES]
    named = [one for one in unmeasured if one.id in chosen]
    if not named and len(measured) < 2:
        named = list(reversed(unmeasured))[:NEWEST]
    commands = "".join(f"<pre>recover eval {shown(quote(one.reference), 500)}</pre>" for one in named)
    return f"<p>Not measured yet:</p>{commands}" if named else ""


def _latest(asked: Asked, checkpoint: Checkpoint, runs: set[int]) -> dict[Task, Evaluation]:
    """The last measurement of each task; those of the cycles that are compared come first, for they asked the same."""
    done = sorted(asked.reader.evaluations(checkpoint.id), key=lambda one: one.run_id in runs)
    return {(one.suite, one.task, one.data): one for one in done}


def _task(asked: Asked, tasks: Sequence[Task]) -> Task | None:
    wanted = asked.query.get("task")
    return next((task for task in tasks if _name(task) == wanted), tasks[0] if tasks else None)


def _asking(
    asked: Asked, measured: Sequence[Checkpoint], sides: Sequence[Side], tasks: Sequence[Task], task: Task | None
) -> str:
    options = [("", "–"), *((str(one.id), f"{one.reference} ({clock(one.created_at)})") for one in measured)]
    chosen = [str(side.checkpoint.id) for side in sides] + [""] * (len(PLACES) - len(sides))
    labels = ("This", "with this", "and this", "and this")
    fields = "".join(
        choice(place, label, options, value) for place, label, value in zip(PLACES, labels, chosen, strict=True)
    )
    if task:
        fields += choice("task", "Answers to", [(_name(one), _name(one)) for one in tasks], _name(task))
    fields += choice("show", "Show", SHOW, asked.query.get("show", ""))
    kinds = kinds_of(asked.reader.items(sides[0].evaluations[task].id)) if task else []
    if kinds:
        fields += choice("kind", "Instruction", [("", "any"), *((k, k) for k in kinds)], asked.query.get("kind", ""))
    fields += words("text", "With the words", asked.query.get("text", ""))
    return f'<section class="section"><h1>Compare</h1>{form(fields, "Compare")}</section>'


def _scores(asked: Asked, sides: Sequence[Side], tasks: Sequence[Task]) -> str:
    rows = []
    for key in tasks:
        suite, task, data = key
        cells = [Cell(f"{shown(task, 60)} <small>{suite} · {shown(data, 60)}</small>", "", f"{task} {data}")]
        passes = asked.reader.passes(sides[0].evaluations[key].id)
        for place, side in enumerate(sides):
            evaluation = side.evaluations.get(key)
            cells.append(number(headline(evaluation)) if evaluation else Cell(NOTHING, "number", ""))
            if place and evaluation:
                cells.append(_flips(flips(passes, asked.reader.passes(evaluation.id))))
            elif place:
                cells.append(Cell(NOTHING))
        rows.append(cells)
    columns = ["Task", plain(sides[0].checkpoint.reference)]
    for side in sides[1:]:
        columns += [plain(side.checkpoint.reference), "lost / gained"]
    note = "With 95 % intervals. p: how often chance alone would part two equally good models so far (McNemar, exact)."
    return card("Scores", table("Scores side by side", columns, rows, save="compare"), note)


def _answers(asked: Asked, sides: Sequence[Side], task: Task) -> str:
    kind, text, show = (asked.query.get(name, "") for name in ("kind", "text", "show"))
    by_key = [
        {item.key: item for item in asked.reader.items(side.evaluations[task].id)} if task in side.evaluations else {}
        for side in sides
    ]
    rows = [[items.get(key) for items in by_key] for key in by_key[0]]
    found = [row for row in rows if matches(row, kind, text, show)]
    last = max(0, (len(found) - 1) // A_PAGE)
    at = min((asked.number("page") or 1) - 1, last)
    body = "".join(_row(asked, sides, row, kind) for row in found[at * A_PAGE : (at + 1) * A_PAGE])
    query = {name: asked.query[name] for name in ASKED if name in asked.query}
    ways = [link("compare", "← before", **query, page=at)] if at else []
    ways += [link("compare", "more →", **query, page=at + 2)] if at < last else []
    paging = f'<p class="ways">page {at + 1} of {last + 1} {" · ".join(ways)}</p>' if last else ""
    none = '<p class="nothing">No answer is like that.</p>'
    return card(f"Answers to {plain(_name(task))}", (body or none) + paging, f"{len(found)} of {len(rows)} items")


def _row(asked: Asked, sides: Sequence[Side], items: Sequence[Item | None], kind: str) -> str:
    prompt = next(item.prompt for item in items if item is not None)
    texts = [item.answer if item else "" for item in items]
    cells = []
    for place, (side, item) in enumerate(zip(sides, items, strict=True)):
        other = texts[0] if place else texts[1]
        told = f"<bdi>{marked(item.answer, other)}</bdi>" if item else NOTHING
        ticks = " ".join(_tick(name, yes, kind) for name, yes in instructions(item)) if item else ""
        passed = tick(item.passed) if item else ""
        cells.append(f'<div class="answer"><h4>{_title(side)} {passed}</h4><p class="text">{told}</p>{ticks}</div>')
    whom = ",".join(str(side.checkpoint.id) for side in sides)
    again = link("try", "Try it", of=whom, prompt=prompt) if asked.actions.generate and len(prompt) < TRYABLE else ""
    asked_for = f'<h3 class="text">{shown(prompt, 2000)} <small>{again}</small></h3>'
    return f'<article class="item">{asked_for}<div class="side">{"".join(cells)}</div></article>'


def _tick(name: str, followed: bool, kind: str) -> str:
    inside = tick(followed, shown(name, 60))
    return f'<span class="asked-for">{inside}</span>' if kind and is_kind(name, kind) else inside


def _flips(found: Flips) -> Cell:
    if not found.both:
        return Cell("other items")
    sure = f"p = {found.p_value:.3f}" if found.p_value >= 0.001 else "p < 0.001"
    return Cell(
        f"−{found.lost} / +{found.gained} <small>{sure}</small>", "number", f"-{found.lost}/+{found.gained} {sure}"
    )


def _title(side: Side) -> str:
    return shown(side.checkpoint.reference, 60)


def _name(task: Task) -> str:
    return " · ".join(task)
