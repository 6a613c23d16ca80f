"""One cycle from its documents to its verdict: stages, curves, evaluations, settings, notes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages import cycle_summary as summaries
from dashboard.pages.compare import changes_by_kind, on_shared_items
from dashboard.pages.cycle_list import documents_path
from dashboard.pages.cycle_summary import EARLIER_KNOWLEDGE, Task, latest_evaluations
from dashboard.pages.forms import note_form, notes_card, promotion_form
from dashboard.pages.overview import verdict
from dashboard.pages.repaired_models import no_cycle
from dashboard.ui.caches import RunMetrics
from dashboard.ui.charts.figure import NAMES, Axis
from dashboard.ui.charts.runs import RunCurves, curves, meanings
from dashboard.ui.html import (
    STAGE_NAMES,
    Cell,
    badge,
    bdi,
    card,
    change,
    chart_card,
    choice,
    clock,
    code,
    duration,
    form,
    join,
    link,
    links,
    load,
    nothing,
    number,
    score_cell,
    size,
    table,
    tick,
)
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, mark_shown, poll, project_version
from db.column_types import now
from db.headline_scores import headline
from db.queries import Reader
from db.tables import Cycle, Evaluation, Promotion, Run, Stage
from db.verdict_lines import status

TARGETS: dict[str, Axis] = {"midtrain": "knowledge", "distill": "behaviour"}  # the score each kind of training is for
SMOOTHING = {"": 0.0, "some": 0.8, "much": 0.95}
SCALES = [("", "linear"), ("log", "logarithmic")]
_html = load("cycle.html")
Evaluations = Mapping[str, Mapping[Task, Evaluation]]  # by stage and task
STAGES = {"clean": "Clean", "damaged": "Mid-trained", "recovered": "Recovered"}
MAX_DOCUMENTS = 200


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    ids = ("stages", "curves-head", "curves", "details", "notes")
    parts = [gr.HTML(), *(gr.HTML(elem_id=id) for id in ids)]
    parts += [note_form(dashboard, _subject), promotion_form(dashboard, _subject)]
    poll(app, dashboard, "cycle", parts, render, version)


def version(request: PageRequest) -> Any:
    """A running cycle has new steps to draw before anything else about it changes."""
    return project_version(request), [request.reader.last_step(run.id) for run in request.running]


def render(request: PageRequest) -> list[Any]:
    reader, project, actions = request.reader, request.project, request.actions
    cycles = reader.cycles(project.id)
    cycle = requested_cycle(request, cycles)
    past = cycles[: cycles.index(cycle) + 1]
    stages, decisions = reader.stages(project.id), reader.promotions(project.id)
    current = reader.current(project.id)
    (trail,) = summaries.trails([cycle], stages, current=current)
    runs = reader.runs(project.id)
    cycle_runs = [run for run in reversed(runs) if run.cycle == cycle.number]
    smoothing, log = request.query.get("smoothing", ""), request.query.get("scale") == "log"
    figure = curves(curves_of(cycle_runs, request.metrics), request.look, SMOOTHING.get(smoothing, 0.0), log)
    fields = [
        choice("smoothing", "Smoothing", [(name, name or "none") for name in SMOOTHING], smoothing),
        choice("scale", "Scale", SCALES, "log" if log else ""),
    ]
    filters = form(fields, hidden={"number": cycle.number})
    details = [
        *results(reader, cycle, cycles, stages, decisions),
        settings(runs, cycle, past[-2] if len(past) > 1 else None),
        documents(reader, cycle, project.root),
    ]
    return [
        mark_shown(cycle=cycle.id, checkpoint=cycle.recovered.checkpoint_id)
        + _links(cycle, cycles)
        + verdict(cycle, trail, summaries.clean_mark(cycle), cycle_runs, decisions, cycle == cycles[-1]),
        timeline(reader, cycle_runs, decisions, cycle, request.metrics),
        _html.curves_head(filters, meanings(figure)) if figure else None,
        chart_card("curves", figure) if figure else None,
        join(details),
        notes_card(reader.notes(project.id, cycle=cycle.id)),
        gr.update(visible=actions.add_note is not None),
        gr.update(visible=actions.decide is not None and cycle.recovered.checkpoint not in (None, current)),
    ]


def curves_of(runs: Sequence[Run], metrics: RunMetrics) -> list[RunCurves]:
    """The training curves of those runs that train; several distillations of a cycle are numbered."""
    training = [run for run in runs if run.kind in TARGETS]
    attempts = [run.id for run in training if run.kind == "distill"]
    names = {id: f", attempt {number}" for number, id in enumerate(attempts, 1)} if len(attempts) > 1 else {}
    return [
        RunCurves(STAGE_NAMES[run.kind] + names.get(run.id, ""), TARGETS[run.kind], metrics.series(run))
        for run in training
    ]


def requested_cycle(request: PageRequest, cycles: Sequence[Cycle]) -> Cycle:
    """The cycle in the address, by default the latest."""
    if not cycles:
        raise no_cycle(request)
    if "number" not in request.query:
        return cycles[-1]
    cycle = next((cycle for cycle in cycles if cycle.number == request.number("number")), None)
    if cycle is None:
        raise NotFound("There is no such cycle", link=link("cycles", "All cycles"))
    return cycle


def _subject(request: PageRequest) -> tuple[int | None, int | None]:
    """What notes and decisions on this page are about: the cycle and its final checkpoint."""
    cycle = requested_cycle(request, request.reader.cycles(request.project.id))
    return cycle.id, cycle.recovered.checkpoint_id


def _links(cycle: Cycle, cycles: Sequence[Cycle]) -> Markup:
    numbers = [other.number for other in cycles]
    index = numbers.index(cycle.number)
    result = [link("cycles", "All cycles")]
    if index > 0:
        result.append(link("cycle", f"← Cycle {numbers[index - 1]}", number=numbers[index - 1]))
    if index + 1 < len(numbers):
        result.append(link("cycle", f"Cycle {numbers[index + 1]} →", number=numbers[index + 1]))
    ends = [stage.checkpoint.id for stage in (cycle.clean, cycle.recovered) if stage.checkpoint]
    if len(ends) == 2:
        result.append(link("compare", "Compare with the clean model", a=ends[0], b=ends[1]))
    return links(result)


def results(
    reader: Reader,
    cycle: Cycle,
    cycles: Sequence[Cycle],
    stages: Sequence[Stage],
    decisions: Sequence[Promotion],
) -> list[Markup]:
    """What was measured and decided, for the page of a cycle and for its report."""
    ends = {name: getattr(cycle, name).checkpoint for name in STAGES}
    evaluations = {name: latest_evaluations(reader, end, cycle.number) if end else {} for name, end in ends.items()}
    return [
        attempts(stages, decisions, cycle),
        measurements(reader, evaluations, cycle),
        earlier_knowledge(evaluations, cycle, cycles),
        instruction_kinds(reader, evaluations, cycle),
    ]


def timeline(
    reader: Reader, runs: Sequence[Run], decisions: Sequence[Promotion], cycle: Cycle, metrics: RunMetrics
) -> Markup:
    """The runs of a cycle as bars over time, with what their steps took, and the decisions on it."""
    if not runs:
        return card("Stages", nothing("No runs yet."))
    start = min(run.started_at for run in runs)
    total = max(_end(run) for run in runs) - start or timedelta(seconds=1)
    bars = []
    for run in runs:
        has_rollouts = reader.last_rollout(run.id) is not None
        left, width = (run.started_at - start) / total, (_end(run) - run.started_at) / total
        bars.append(_html.bar(run, _run_text(run, metrics), left, width, has_rollouts))
    decided = [(decision.outcome, decision) for decision in reversed(decisions) if decision.cycle == cycle.number]
    return card("Stages", _html.timeline(bars, decided), f"{clock(start)}, {duration(total)} in total")


def attempts(stages: Sequence[Stage], decisions: Sequence[Promotion], cycle: Cycle) -> Markup:
    """The recovered checkpoints of a cycle, where it has several."""
    recovered = [
        (checkpoint, stage.scores)
        for stage in stages
        if (checkpoint := stage.checkpoint) and (checkpoint.cycle, checkpoint.role) == (cycle.number, "recovered")
    ]
    if len(recovered) < 2:
        return Markup()
    last = {decision.checkpoint_id: decision for decision in reversed(decisions)}
    rows = [
        [
            Cell(link("lineage", bdi(checkpoint.reference, 60), checkpoint=checkpoint.id)),
            Cell(checkpoint.step or 0, "number"),
            *(number(scores.get(axis)) for axis in NAMES),
            Cell(badge(last[checkpoint.id].outcome if checkpoint.id in last else "open")),
        ]
        for checkpoint, scores in recovered
    ]
    columns = ["Checkpoint", "Steps", *NAMES.values(), "Decision"]
    content = table("Attempts", columns, rows, save=f"attempts-cycle-{cycle.number}")
    is_one_student = len({checkpoint.parent_id for checkpoint, _ in recovered}) == 1
    note = "Oldest first. All began from the same mid-trained checkpoint."
    return card("Attempts", content, note if is_one_student else "Oldest first.")


def measurements(reader: Reader, evaluations: Evaluations, cycle: Cycle) -> Markup:
    """Every task that was measured, for each of the three checkpoints."""
    tasks = sorted({key for tasks in evaluations.values() for key in tasks if key[0] != EARLIER_KNOWLEDGE})
    if not tasks:
        return Markup()
    rows = []
    for key in tasks:
        scores = [headline(evaluations[stage].get(key)) for stage in STAGES]
        shared = on_shared_items(reader, [summaries.level_of(score) for score in scores[1:]])
        suite, task, data = key
        name = Cell(_html.task(task, data))
        rows.append(
            [
                name,
                Cell(suite),
                *(number(score) for score in scores),
                Cell(change(*shared.values) if shared else nothing()),
            ]
        )
    columns = ["Task", "Suite", *STAGES.values(), "Change by distillation"]
    return card("Evaluations", table("All evaluations", columns, rows, save=f"measured-cycle-{cycle.number}"))


def earlier_knowledge(evaluations: Evaluations, cycle: Cycle, cycles: Sequence[Cycle]) -> Markup:
    """The knowledge of every earlier cycle's documents."""
    by_task = {f"cycle:{other.number}": other for other in cycles}
    keys = {**evaluations["damaged"], **evaluations["recovered"]}
    tasks = {key[1]: key for key in keys if key[0] == EARLIER_KNOWLEDGE and key[1]}
    bounds = (cycle.verdict or {}).get(EARLIER_KNOWLEDGE) or {}
    rows = []
    for task in sorted(tasks, key=lambda name: by_task[name].number if name in by_task else 0):
        earlier = by_task.get(task)
        scores = [headline(evaluations[stage].get(tasks[task])) for stage in ("damaged", "recovered")]
        bound = bounds.get(task.removeprefix("cycle:"), {})
        then = number(earlier.recovered.scores.get("knowledge") if earlier else None)
        if bound.get("before") is not None:  # on the questions that were asked both times
            then = score_cell(bound["before"])
        rows.append(
            [
                Cell(link("cycle", f"Cycle {earlier.number}", number=earlier.number) if earlier else bdi(task, 60)),
                Cell(bdi(documents_path(earlier, ""), 60) if earlier else "", "documents"),
                then,
                *(number(score) for score in scores),
                score_cell(bound.get("limit")),
                Cell(tick(status(bound)) if bound else nothing(), "", status(bound) if bound else ""),
            ]
        )
    if not rows:
        return Markup()
    columns = ["Cycle", "Documents", "At the end of that cycle", "Mid-trained", "Recovered", "Limit", "Passed"]
    note = "Each earlier cycle's questions, answered again in this cycle."
    return card(
        "Knowledge of earlier cycles", table("Knowledge of earlier cycles", columns, rows, save="earlier"), note
    )


def instruction_kinds(reader: Reader, evaluations: Evaluations, cycle: Cycle) -> Markup:
    """What was forgotten and what was recovered, by kind of instruction; the largest loss first."""
    shares = {
        stage: {key: _strict_by_kind(evaluation) for key, evaluation in tasks.items() if key[0] == "behaviour"}
        for stage, tasks in evaluations.items()
    }
    tasks = {kind: key for key, kinds in shares["damaged"].items() for kind in kinds}  # those of the cycle are last
    by_midtraining, since_clean = (
        {
            (key, kind): difference
            for key in set(tasks.values())
            for kind, difference in changes_by_kind(reader, *(evaluations[side].get(key) for side in sides)).items()
        }
        for sides in (("clean", "damaged"), ("clean", "recovered"))
    )
    rows = []
    for kind in sorted(tasks, key=lambda kind: by_midtraining.get((tasks[kind], kind), 1.0)):
        values = {stage: shares[stage].get(tasks[kind], {}).get(kind) for stage in STAGES}
        bars = [
            Cell(nothing() if value is None else _html.share_bar(value, stage), "share", value)
            for stage, value in values.items()
        ]
        ends = {"a": cycle.clean.checkpoint_id, "b": cycle.last_measured.checkpoint_id}
        name = link("compare", bdi(kind, 80), **ends, task=summaries.task_name(tasks[kind]), kind=kind)
        rows.append([Cell(name), *bars, Cell(change(0.0, since_clean.get((tasks[kind], kind))) or nothing())])
    if not rows:
        return Markup()
    columns = ["Instruction", *STAGES.values(), "Change from clean"]
    note = "Largest loss first. Losses and changes are on the prompts that both checkpoints answered."
    content = table("By kind of instruction", columns, rows, save=f"kinds-cycle-{cycle.number}")
    return card("Forgotten and recovered, by kind of instruction", content, note)


def settings(runs: Sequence[Run], cycle: Cycle, previous: Cycle | None) -> Markup:
    """The settings that a person gave otherwise than for the previous cycle; without one, those given. All of them are
    behind a click."""
    used = _training_settings(runs, cycle, lambda run: run.settings)
    if not used:
        return Markup()
    of_cycles = [cycle, *([previous] if previous else [])]
    given = [_training_settings(runs, shown, lambda run: run.inputs.given or {}) for shown in of_cycles]
    names = [name for name in dict.fromkeys(name for side in given for name in side)
             if previous is None or given[0].get(name) != given[1].get(name)]  # fmt: skip
    columns = ["Setting", "This cycle", *([f"Cycle {previous.number}"] if previous else [])]
    rows = [[Cell(bdi(name, 80)), *(Cell(bdi(side.get(name, "default"), 200)) for side in given)] for name in names]
    title = "Settings changed since the previous cycle" if previous else "Settings given"
    nothing_given = "Nothing was changed." if previous else "None: all have their defaults."
    content = table(title, columns, rows, save="settings") if rows else nothing(nothing_given)
    every = table("All settings", columns[:2], [[Cell(bdi(name, 80)), Cell(bdi(used[name], 200))] for name in used])
    return card(title, join([content, _html.details(f"All {len(used)} settings", every)]))


def documents(reader: Reader, cycle: Cycle, root: str) -> Markup:
    listed = reader.documents(cycle.corpus_id) if cycle.corpus_id is not None else []
    rows = [
        [
            Cell(bdi(document.name, 200)),
            Cell(size(document.bytes), "number", document.bytes),
            Cell(code(document.hash[:12])),
        ]
        for document in listed[:MAX_DOCUMENTS]
    ]
    total = size(sum(document.bytes for document in listed))
    summary = f"{len(listed)} document{'s' * (len(listed) > 1)}, {total}." if listed else ""
    summary += f" The first {len(rows)} are listed." if len(rows) < len(listed) else ""
    note = _html.documents_note(documents_path(cycle, root), summary)
    if not rows:
        return card("Documents", note=note)
    content = table("Documents", ["Document", "Size", "Content hash"], rows, save=f"documents-cycle-{cycle.number}")
    return card("Documents", _html.details("Show documents", content), note)


def _training_settings(runs: Sequence[Run], cycle: Cycle, of_run: Callable[[Run], Mapping[str, Any]]) -> dict[str, str]:
    """By name, of the mid-training and of the attempt that the cycle ended with; `runs` has the newest first."""
    ended = {stage.checkpoint.run_id for stage in (cycle.damaged, cycle.recovered) if stage.checkpoint}
    trainings = [run for run in reversed(runs) if run.cycle == cycle.number and run.kind != "eval"]
    trainings.sort(key=lambda run: (run.kind != "midtrain", run.id in ended))
    settings: dict[str, str] = {}
    for run in {run.kind: run for run in trainings}.values():
        of_others = ("midtrain.",) if run.kind == "distill" else ("distill.", "gate.")
        settings |= {name: value for name, value in _flat(of_run(run)) if not name.startswith(of_others)}
    return settings


def _strict_by_kind(evaluation: Evaluation) -> dict[str, float]:
    return {
        metric.removeprefix("strict/"): score.value
        for metric, score in evaluation.scores.items()
        if metric.startswith("strict/") and score.value is not None
    }


def _end(run: Run) -> datetime:
    return run.finished_at or (now() if run.status == "running" and not run.stale else run.heartbeat_at)


def _run_text(run: Run, metrics: RunMetrics) -> tuple[str, str]:
    times = summaries.step_times(metrics.series(run)) if run.kind in TARGETS else ""
    heartbeat = f"last heartbeat {clock(run.heartbeat_at)}" if run.status == "running" else ""
    return f"{STAGE_NAMES[run.kind]}, {duration(_end(run) - run.started_at)}", " · ".join(
        filter(None, [times, heartbeat])
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)
