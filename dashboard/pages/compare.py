"""Checkpoints side by side: scores, whether differences are chance, and the answers to the same prompts."""

from collections.abc import Sequence
from shlex import quote
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from dashboard.pages.answer_diff import Flips, count_flips, diff_pieces, instructions, is_kind, kinds_of, matches_filter
from dashboard.ui.components import Cell, card, choice, form, nothing, number, page_title, search_field, table
from dashboard.ui.jinja import join, link, load
from dashboard.ui.layout import not_found
from dashboard.ui.number_formats import clock
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.headline_scores import headline
from db.tables import Checkpoint, Evaluation, Item

SIDES = ("a", "b", "c", "d")
LABELS = ("First", "Second", "Third", "Fourth")
QUERY_NAMES = (*SIDES, "task", "show", "kind", "text")  # what links to other pages of the answers repeat
PAGE_SIZE = 15  # answers
MAX_PLAYGROUND_PROMPT = 1500  # characters that fit into an address
MAX_SUGGESTIONS = 4  # checkpoints to evaluate
CYCLE_COMMAND = "recover cycle --docs ./corpus"
SHOW = [("", "all items"), ("flipped", "flipped"), ("lost", "lost: passed, then failed"), ("gained", "gained")]
_html = load("compare.html")

Task = tuple[str, str, str]  # suite, task, data: evaluations that agree in these have the same items


class Side(NamedTuple):
    checkpoint: Checkpoint
    evaluations: dict[Task, Evaluation]


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    poll(app, dashboard, "compare", [gr.HTML(), gr.HTML(elem_id="scores"), gr.HTML(elem_id="answers")], render)


def render(request: PageRequest) -> list[Any]:
    stages = request.reader.stages(request.project.id)
    measured = [stage.checkpoint for stage in stages if stage.scores and stage.checkpoint]
    sides = _sides(request, measured)
    commands = _suggestions(request, measured, [s.checkpoint for s in stages if s.checkpoint and not s.scores])
    problem = _problem(measured, sides, commands)
    if problem and not measured:
        raise NotFound("Nothing to compare yet", *problem)
    missing = not_found(NotFound("", *problem)) if problem else Markup()
    if len(sides) < 2:
        return [_filters(request, measured, sides, [], None) + missing, None, None]
    first, *others = sides
    tasks = sorted(key for key in first.evaluations if any(key in side.evaluations for side in others))
    task = next((one for one in tasks if _name(one) == request.query.get("task")), tasks[0] if tasks else None)
    answers = _answers(request, sides, task) if task else card("Answers", nothing("No task in common."))
    return [_filters(request, measured, sides, tasks, task) + missing, _scores(request, sides, tasks), answers]


def _problem(
    measured: Sequence[Checkpoint], sides: Sequence[Side], commands: Sequence[str]
) -> tuple[str, Sequence[str]] | None:
    """What is missing for a comparison: a text and commands."""
    if commands:
        return "Not evaluated yet:", commands
    if len(measured) < 2:
        return "There is no other checkpoint to compare with. Run a cycle on your documents:", [CYCLE_COMMAND]
    return ("Choose two checkpoints.", []) if len(sides) < 2 else None


def _sides(request: PageRequest, measured: Sequence[Checkpoint]) -> list[Side]:
    """The checkpoints in the address, by default the clean model and the latest that was measured."""
    by_id = {checkpoint.id: checkpoint for checkpoint in measured}
    ids = [request.number(side) for side in SIDES]
    selected = [by_id[id] for id in dict.fromkeys(ids) if id in by_id]
    if not any(request.query.get(side) for side in SIDES):
        selected = list(dict.fromkeys([*measured[:1], *measured[-1:]]))
    cycles = {one.cycle for one in selected}
    runs = {run.id for run in request.reader.runs(request.project.id) if run.cycle in cycles}
    return [Side(one, _latest_evaluations(request, one, runs)) for one in selected]


def _suggestions(request: PageRequest, measured: Sequence[Checkpoint], unmeasured: Sequence[Checkpoint]) -> list[str]:
    """Commands that evaluate what the address names or, without two measured checkpoints, the newest ones."""
    ids = [request.number(side) for side in SIDES]
    selected = [one for one in unmeasured if one.id in ids]
    if not selected and len(measured) < 2:
        selected = list(reversed(unmeasured))[:MAX_SUGGESTIONS]
    return [f"recover eval {quote(one.reference)}" for one in selected]


def _latest_evaluations(request: PageRequest, checkpoint: Checkpoint, runs: set[int]) -> dict[Task, Evaluation]:
    """The last evaluation of each task. Those of the compared cycles take precedence: they have the same items."""
    evaluations = sorted(request.reader.evaluations(checkpoint.id), key=lambda one: one.run_id in runs)
    return {(one.suite, one.task, one.data): one for one in evaluations}


def _filters(
    request: PageRequest,
    measured: Sequence[Checkpoint],
    sides: Sequence[Side],
    tasks: Sequence[Task],
    task: Task | None,
) -> Markup:
    options = [("", "–"), *((str(one.id), f"{one.reference} ({clock(one.created_at)})") for one in measured)]
    selected = [str(side.checkpoint.id) for side in sides] + [""] * (len(SIDES) - len(sides))
    fields = [choice(side, label, options, id) for side, label, id in zip(SIDES, LABELS, selected, strict=True)]
    if task:
        fields.append(choice("task", "Task", [(_name(one), _name(one)) for one in tasks], _name(task)))
    fields.append(choice("show", "Show", SHOW, request.query.get("show", "")))
    kinds = kinds_of(request.reader.items(sides[0].evaluations[task].id)) if task else []
    if kinds:
        kind_options = [("", "any"), *((kind, kind) for kind in kinds)]
        fields.append(choice("kind", "Instruction", kind_options, request.query.get("kind", "")))
    fields.append(search_field("text", "Containing", request.query.get("text", "")))
    return page_title("Compare", form(fields, "Compare"))


def _scores(request: PageRequest, sides: Sequence[Side], tasks: Sequence[Task]) -> Markup:
    rows = []
    for key in tasks:
        suite, task, data = key
        cells = [Cell(_html.task(suite, task, data), "", f"{task} {data}")]
        passes = request.reader.passes(sides[0].evaluations[key].id)
        for index, side in enumerate(sides):
            evaluation = side.evaluations.get(key)
            cells.append(number(headline(evaluation) if evaluation else None))
            if index:
                flips = count_flips(passes, request.reader.passes(evaluation.id)) if evaluation else None
                cells.append(_flips_cell(flips) if flips else Cell(nothing()))
        rows.append(cells)
    columns = ["Task", sides[0].checkpoint.reference]
    for side in sides[1:]:
        columns += [side.checkpoint.reference, "lost / gained"]
    note = "With 95 % confidence intervals. p: probability of so uneven a split between equally good models (McNemar)."
    return card("Scores", table("Scores side by side", columns, rows, save="compare"), note)


def _answers(request: PageRequest, sides: Sequence[Side], task: Task) -> Markup:
    kind, text, show = (request.query.get(name, "") for name in ("kind", "text", "show"))
    by_key = [
        {item.key: item for item in request.reader.items(side.evaluations[task].id)} if task in side.evaluations else {}
        for side in sides
    ]
    rows = [[items.get(key) for items in by_key] for key in by_key[0]]
    matching = [row for row in rows if matches_filter(row, kind, text, show)]
    last = max(0, (len(matching) - 1) // PAGE_SIZE)
    index = min((request.number("page") or 1) - 1, last)
    body = join(_row(request, sides, row, kind) for row in matching[index * PAGE_SIZE : (index + 1) * PAGE_SIZE])
    query = {name: request.query[name] for name in QUERY_NAMES if name in request.query}
    previous = link("compare", "← previous", **query, page=index) if index else ""
    following = link("compare", "next →", **query, page=index + 2) if index < last else ""
    paging = _html.paging(index + 1, last + 1, previous, following) if last else ""
    content = join([body or nothing("No answer matches the filters."), paging])
    return card(f"Answers to {_name(task)}", content, f"{len(matching)} of {len(rows)} items")


def _row(request: PageRequest, sides: Sequence[Side], items: Sequence[Item | None], kind: str) -> Markup:
    prompt = next(item.prompt for item in items if item is not None)
    answers = [item.answer if item else "" for item in items]
    columns = []
    for index, (side, item) in enumerate(zip(sides, items, strict=True)):
        pieces = diff_pieces(item.answer, answers[0] if index else answers[1]) if item else []
        verdicts = instructions(item) if item else []
        names = [(name, followed, bool(kind) and is_kind(name, kind)) for name, followed in verdicts]
        columns.append((side.checkpoint.reference, item, pieces, names))
    ids = ",".join(str(side.checkpoint.id) for side in sides)
    may_try = request.actions.generate is not None and len(prompt) < MAX_PLAYGROUND_PROMPT
    return _html.item(prompt, link("try", "Try it", of=ids, prompt=prompt) if may_try else "", columns)


def _flips_cell(flips: Flips) -> Cell:
    if not flips.both:
        return Cell("different items")
    p = f"p = {flips.p_value:.3f}" if flips.p_value >= 0.001 else "p < 0.001"
    return Cell(_html.flips(flips, p), "number", f"-{flips.lost}/+{flips.gained} {p}")


def _name(task: Task) -> str:
    return " · ".join(task)
