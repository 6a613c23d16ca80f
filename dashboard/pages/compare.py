"""Checkpoints side by side: scores, whether differences are chance, and where answers to the same prompts differ."""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from shlex import quote
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from dashboard.pages.cycle_summary import Task, latest_evaluations, task_name
from dashboard.ui.charts.cycles import Level
from dashboard.ui.html import (
    Cell,
    card,
    choice,
    clock,
    form,
    join,
    link,
    load,
    nothing,
    number,
    page_title,
    search_field,
    table,
)
from dashboard.ui.layout import not_found
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.headline_scores import headline
from db.queries import Reader
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
Pieces = list[tuple[str, bool]]

MAX_DIFF_LENGTH = 6_000  # characters: a word-by-word comparison of longer texts is slow
MAX_EQUAL_PAIRS = 60_000  # of a word of one text with one of the other: so is that of texts that repeat themselves


class Side(NamedTuple):
    checkpoint: Checkpoint
    evaluations: dict[Task, Evaluation]


class Flips(NamedTuple):
    both: int  # items that both checkpoints were graded on
    lost: int
    gained: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test of the hypothesis that as many items are lost as gained."""
        n = self.lost + self.gained
        return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(self.lost, self.gained) + 1)) / 2**n)

    @property
    def shows_loss(self) -> bool:
        """Whether the gate's paired bound of the change, with 95 % confidence, is below zero."""
        return self.lost > self.gained and self.p_value / 2 < 0.05


class Shared(NamedTuple):
    """Scores of several checkpoints on the items that all of them answered: others cannot be subtracted."""

    values: list[float]
    passes: list[dict[str, bool | None]]  # empty where items have grades
    n: int | None  # of the items, where not all checkpoints were measured on the same ones


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    poll(app, dashboard, "compare", [gr.HTML(), gr.HTML(elem_id="scores"), gr.HTML(elem_id="answers")], render)


def render(request: PageRequest) -> list[Any]:
    reader, project = request.reader, request.project.id
    checkpoints, evaluated = reader.checkpoints(project), reader.evaluated(project)
    measured = [checkpoint for checkpoint in checkpoints if checkpoint.id in evaluated]
    sides = _sides(request, measured)
    commands = _suggestions(request, measured, [one for one in checkpoints if one.id not in evaluated])
    problem = _problem(measured, sides, commands)
    if problem and not measured:
        raise NotFound("Nothing to compare yet", *problem)
    missing = not_found(NotFound("", *problem)) if problem else Markup()
    if len(sides) < 2:
        return [_filters(request, measured, sides, [], None) + missing, None, None]
    first, *others = sides
    tasks = sorted(key for key in first.evaluations if any(key in side.evaluations for side in others))
    task = next((key for key in tasks if task_name(key) == request.query.get("task")), tasks[0] if tasks else None)
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
    cycle = max((checkpoint.cycle for checkpoint in selected if checkpoint.cycle), default=None)
    return [Side(checkpoint, latest_evaluations(request.reader, checkpoint, cycle)) for checkpoint in selected]


def _suggestions(request: PageRequest, measured: Sequence[Checkpoint], unmeasured: Sequence[Checkpoint]) -> list[str]:
    """Commands that evaluate what the address names or, without two measured checkpoints, the newest ones."""
    ids = [request.number(side) for side in SIDES]
    selected = [checkpoint for checkpoint in unmeasured if checkpoint.id in ids]
    if not selected and len(measured) < 2:
        selected = list(reversed(unmeasured))[:MAX_SUGGESTIONS]
    return [f"recover eval {quote(checkpoint.reference)}" for checkpoint in selected]


def _filters(
    request: PageRequest,
    measured: Sequence[Checkpoint],
    sides: Sequence[Side],
    tasks: Sequence[Task],
    task: Task | None,
) -> Markup:
    options = [
        ("", "–"),
        *((str(checkpoint.id), f"{checkpoint.reference} ({clock(checkpoint.created_at)})") for checkpoint in measured),
    ]
    selected = [str(side.checkpoint.id) for side in sides] + [""] * (len(SIDES) - len(sides))
    fields = [choice(side, label, options, id) for side, label, id in zip(SIDES, LABELS, selected, strict=True)]
    if task:
        fields.append(choice("task", "Task", [(task_name(key), task_name(key)) for key in tasks], task_name(task)))
    fields.append(choice("show", "Show", SHOW, request.query.get("show", "")))
    kinds = kinds_of(request.reader.verdicts(sides[0].evaluations[task].id).values()) if task else []
    if kinds:
        kind_options = [("", "any"), *((kind, kind) for kind in kinds)]
        fields.append(choice("kind", "Instruction", kind_options, request.query.get("kind", "")))
    fields.append(search_field("text", "Containing", request.query.get("text", "")))
    return page_title("Compare", form(fields, "Compare"))


def _scores(request: PageRequest, sides: Sequence[Side], tasks: Sequence[Task]) -> Markup:
    rows = []
    for key in tasks:
        cells = [Cell(_html.task(*key), "", f"{key[1]} {key[2]}")]
        evaluations = [side.evaluations.get(key) for side in sides]
        passes = [request.reader.passes(evaluation.id) if evaluation else {} for evaluation in evaluations]
        pairs = zip(evaluations, passes, strict=True)
        graded = any(_has_grades(evaluation, passed) for evaluation, passed in pairs if evaluation)
        for index, evaluation in enumerate(evaluations):
            cells.append(number(headline(evaluation)))
            if index and evaluation is None:
                cells.append(Cell(nothing()))
            elif index and not _of_one_file(evaluations[0], evaluation):
                cells.append(Cell("the file has changed"))
            elif index:
                cells.append(Cell("graded") if graded else _flips_cell(count_flips(passes[0], passes[index])))
        rows.append(cells)
    columns = ["Task", sides[0].checkpoint.reference]
    for side in sides[1:]:
        columns += [side.checkpoint.reference, "lost / gained"]
    note = "With 95 % confidence intervals. p: probability of so uneven a split between equally good models (McNemar)."
    note += " Graded: items do not pass or fail."
    return card("Scores", table("Scores side by side", columns, rows, save="compare"), note)


def _answers(request: PageRequest, sides: Sequence[Side], task: Task) -> Markup:
    kind, text, show = (request.query.get(name, "") for name in ("kind", "text", "show"))
    evaluations = [side.evaluations.get(task) for side in sides]
    by_key = [
        {item.key: item for item in request.reader.items(evaluation.id)}
        if evaluation and _of_one_file(evaluations[0], evaluation)
        else {}
        for evaluation in evaluations
    ]
    rows = [[items.get(key) for items in by_key] for key in by_key[0]]
    matching = [row for row in rows if matches_filter(row, kind, text, show)]
    last = max(0, (len(matching) - 1) // PAGE_SIZE)
    index = min((request.number("page") or 1) - 1, last)
    passes = [{key: item.passed for key, item in items.items()} for items in by_key]
    pairs = zip(evaluations, passes, strict=True)
    graded = any(_has_grades(evaluation, passed) for evaluation, passed in pairs if passed)
    body = join(
        _row(request, sides, row, kind, graded) for row in matching[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]
    )
    query = {name: request.query[name] for name in QUERY_NAMES if name in request.query}
    previous = link("compare", "← previous", **query, page=index) if index else ""
    following = link("compare", "next →", **query, page=index + 2) if index < last else ""
    paging = _html.paging(index + 1, last + 1, previous, following) if last else ""
    content = join([body or nothing("No answer matches the filters."), paging])
    return card(f"Answers to {task_name(task)}", content, f"{len(matching)} of {len(rows)} items")


def _row(request: PageRequest, sides: Sequence[Side], items: Sequence[Item | None], kind: str, graded: bool) -> Markup:
    known = next(filter(None, items))
    prompt, answers = known.prompt, [(item or known).answer for item in items]
    (first, second), *others = (diff_pieces(answers[0], answer) for answer in answers[1:])
    columns = []
    for side, item, pieces in zip(sides, items, [first, second, *(pieces for _, pieces in others)], strict=True):
        verdicts = instructions(item.verdicts) if item else []
        names = [(name, followed, bool(kind) and is_kind(name, kind)) for name, followed in verdicts]
        columns.append((side.checkpoint.reference, item, pieces, names))
    ids = ",".join(str(side.checkpoint.id) for side in sides if side.checkpoint.deleted_at is None)
    may_try = ids and request.actions.generate is not None and len(prompt) < MAX_PLAYGROUND_PROMPT
    return _html.item(prompt, link("try", "Try it", of=ids, prompt=prompt) if may_try else "", columns, graded)


def _flips_cell(flips: Flips) -> Cell:
    if not flips.both:
        return Cell("different items")
    p = f"p = {flips.p_value:.3f}" if flips.p_value >= 0.001 else "p < 0.001"
    return Cell(_html.flips(flips, p), "number", f"-{flips.lost}/+{flips.gained} {p}")


def _of_one_file(first: Evaluation | None, other: Evaluation | None) -> bool:
    """Whether keys of items mean the same items: a file may have changed between two measurements."""
    return first is None or other is None or first.content == other.content


def _has_grades(evaluation: Evaluation | None, passes: Mapping[str, bool | None]) -> bool:
    score = headline(evaluation)
    return is_graded(score.value if score else None, score.n if score else 0, passes.values())


def is_graded(value: float | None, n: int | None, passes: Iterable[bool | None]) -> bool:
    """Whether a headline is another than the share of items that passed: of grades a test would see no losses.

    It may differ by as much as items whose keys repeat, of which one is left here."""
    passed = [of_item for of_item in passes if of_item is not None]
    repeated = max((n or 0) - len(passed), 0) / max(n or 0, 1)
    return value is None or not math.isclose(sum(passed) / max(len(passed), 1), value, abs_tol=1e-6 + repeated)


def count_flips(before: Mapping[str, bool | None], after: Mapping[str, bool | None]) -> Flips:
    pairs = [(was, after[key]) for key, was in before.items() if was is not None and after.get(key) is not None]
    lost, gained = sum(bool(was and not now) for was, now in pairs), sum(bool(now and not was) for was, now in pairs)
    return Flips(len(pairs), lost, gained)


def instructions(verdicts: object) -> list[tuple[str, bool]]:
    """Each instruction of a prompt and whether the answer follows it. Empty for other tasks."""
    names, followed = map(verdicts.get, ("instructions", "strict")) if isinstance(verdicts, dict) else (None, None)
    if not isinstance(names, list) or not isinstance(followed, list):
        return []
    return [(str(name), bool(yes)) for name, yes in zip(names, followed, strict=False)]


def kinds_of(verdicts: Iterable[object]) -> list[str]:
    """All kinds of instructions and their families: `startend:quotation` and `startend`."""
    kinds = {kind for of_item in verdicts for kind, _ in instructions(of_item)}
    return sorted(kinds | {kind.partition(":")[0] for kind in kinds})


def is_kind(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}:")


def on_shared_items(reader: Reader, levels: Sequence[Level | None]) -> Shared | None:
    """None where one was not measured, where they share no items, and where grades are of different items."""
    known = [level for level in levels if level is not None]
    ids = [level.evaluation for level in known if level.evaluation is not None]
    if not ids or len(ids) < len(levels) or len({reader.task(id) for id in ids}) > 1:
        return None
    passes = [reader.passes(id) for id in ids]
    graded = any(is_graded(level.value, level.n, of.values()) for level, of in zip(known, passes, strict=True))
    if len({level.n for level in known}) == 1 and all(of.keys() == passes[0].keys() for of in passes):
        return Shared([level.value for level in known], [] if graded else passes, None)
    keys = [key for key in passes[0] if all(of.get(key) is not None for of in passes)]
    if graded or not keys:
        return None
    shared = [{key: of[key] for key in keys} for of in passes]
    return Shared([sum(map(bool, of.values())) / len(keys) for of in shared], shared, len(keys))


def changes_by_kind(reader: Reader, before: Evaluation | None, after: Evaluation | None) -> dict[str, float]:
    """By kind of instruction: how much more of them an evaluation followed than another, on the shared prompts."""
    if before is None or after is None or before.content != after.content:
        return {}
    was, now = reader.verdicts(before.id), reader.verdicts(after.id)
    shares = [_followed([side[key] for key in was if key in now]) for side in (was, now)]
    return {kind: shares[1][kind] - share for kind, share in shares[0].items() if kind in shares[1]}


def _followed(verdicts: Sequence[object]) -> Mapping[str, float]:
    by_kind: dict[str, list[bool]] = {}
    for name, followed in (pair for of_item in verdicts for pair in instructions(of_item)):
        for kind in {name, name.partition(":")[0]}:
            by_kind.setdefault(kind, []).append(followed)
    return {kind: sum(of) / len(of) for kind, of in by_kind.items()}


def diff_pieces(text: str, other: str) -> tuple[Pieces, Pieces]:
    """Each text in pieces, each with whether the other differs from it there."""
    if max(len(text), len(other)) > MAX_DIFF_LENGTH:
        return _whole(text), _whole(other)
    words = _words(text), _words(other)
    before = _common(*words)
    after = _common(*(side[before:][::-1] for side in words))
    middle = [side[before : len(side) - after] for side in words]
    counts, others = map(Counter, middle)
    if sum(count * others[word] for word, count in counts.items()) > MAX_EQUAL_PAIRS:
        return _whole(text), _whole(other)
    changes = difflib.SequenceMatcher(None, middle[0], middle[1], autojunk=False).get_opcodes()
    first = [(middle[0][start:end], tag != "equal") for tag, start, end, _, _ in changes]
    second = [(middle[1][start:end], tag != "equal") for tag, _, _, start, end in changes]
    head, tail = (words[0][:before], False), (words[0][len(words[0]) - after :], False)
    return _joined([head, *first, tail]), _joined([head, *second, tail])


def _common(words: Sequence[str], others: Sequence[str]) -> int:
    """How many words at their beginning are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


def _joined(parts: Iterable[tuple[Sequence[str], bool]]) -> Pieces:
    return [("".join(part), differs) for part, differs in parts if part]


def _whole(text: str) -> Pieces:
    return [(text[:MAX_DIFF_LENGTH] + ("…" if len(text) > MAX_DIFF_LENGTH else ""), False)]


def matches_filter(items: Sequence[Item | None], kind: str, text: str, show: str) -> bool:
    """Whether a row of answers passes the filters of the page. The first is compared with the others."""
    answered = [item for item in items if item is not None]
    if kind and not any(is_kind(name, kind) for item in answered for name, _ in instructions(item.verdicts)):
        return False
    if text and not any(text.lower() in f"{item.prompt}\n{item.answer}".lower() for item in answered):
        return False
    first, *others = (item.passed if item else None for item in items)
    matches = {
        "lost": first is True and False in others,
        "gained": first is False and True in others,
        "flipped": any(other is not None and first is not None and other != first for other in others),
    }
    return matches.get(show, True)


def _words(text: str) -> list[str]:
    return re.findall(r"(?:\w+|[^\w\s]) ?|\s+", text)  # the spaces by themselves would be equal pairs without end
