"""A cycle in short: its scores as trails for the charts and as text, how it ended, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite

from markupsafe import Markup

from dashboard.ui.charts.cycles import DRIFT, Level, Mark, Trail, end_name
from dashboard.ui.charts.figure import NAMES
from dashboard.ui.charts.runs import Series
from dashboard.ui.html import bdi, duration, join, load
from db.headline_scores import MEASURES, PROBE, precedence
from db.queries import STEP_SECONDS, Reader
from db.tables import Checkpoint, Cycle, Evaluation, Headline, Promotion, Run, Score, Stage, promotion_against_gate
from db.verdict_lines import ITEMS, MeasureLine, measure_lines, needed_text

RELATIVE = ("behaviour", "retention")  # measures that are compared with the clean model
EARLIER_KNOWLEDGE = "earlier"  # key of a verdict, and name of the suite: questions on documents of earlier cycles
_OUTCOMES = {"promoted": "it became the current model", "rejected": "the previous model stays current"}
_STATES = {
    "open": "is under way",
    "discarded": "was discarded",
    "rejected": "not promoted",
    "inconclusive": "not promoted",
}
Task = tuple[str, str, str]  # suite, task, data: evaluations of one `content` that agree in these have the same items
_html = load("overview.html")


@dataclass(frozen=True)
class Cost:
    steps: dict[str, int]  # optimiser steps by stage
    time: timedelta | None  # of steps and evaluations; None if none was recorded


def trails(
    cycles: Sequence[Cycle],
    stages: Sequence[Stage],
    drift: Mapping[int, Mapping[str, Score]] | None = None,
    current: Checkpoint | None = None,
) -> list[Trail]:
    """Each cycle from the checkpoint it started from, one of the project's `stages`, to its end. `drift` from the clean
    model by checkpoint, for the chart of it. `current`: what a cycle started from whose mid-training has not ended.

    The knowledge at the start is always that of the clean model: only it answers the questions on new documents. That
    of earlier cycles is left out there: the starting checkpoint was not asked about the last one of them.
    """
    by_checkpoint = {stage.checkpoint.id: stage for stage in stages if stage.checkpoint}
    drift, result = drift or {}, []
    drifts = [metric for metric in DRIFT if any(metric in scores for scores in drift.values())]
    for cycle in cycles:
        under_way = current.id if current and cycle.status == "open" else None
        parent = cycle.damaged.checkpoint.parent_id if cycle.damaged.checkpoint else under_way
        from_clean = parent is None or parent == cycle.clean.checkpoint_id
        start = cycle.clean if from_clean else by_checkpoint.get(parent or 0, cycle.clean)
        name = "clean" if start is cycle.clean else f"before cycle {cycle.number}"
        # Until the cycle has measured something, the latest answers are to another cycle's questions.
        knowledge = cycle.clean.scores.get("knowledge") if cycle.damaged.scores else None
        drifted = dict.fromkeys(drifts, Level(0.0)) if from_clean else _drift(start, drift)
        kept = {measure: start.scores[measure] for measure in RELATIVE if measure in start.scores}
        before = Mark(name, _levels({**kept, "knowledge": knowledge}) | drifted)
        damaged = _mark(f"cycle {cycle.number} mid-trained", cycle.damaged, drift)
        recovered = _mark(f"cycle {cycle.number} {end_name(cycle.outcome)}", cycle.recovered, drift)
        result.append(Trail(cycle.number, cycle.outcome, before, damaged, recovered, _gate(cycle)))
    return result


def clean_mark(cycle: Cycle) -> Mark | None:
    return _mark("clean", cycle.clean)


def headline(cycle: Cycle) -> Markup:
    """How a cycle went, in a few words, and what stood in the way of a promotion."""
    opening, verdict = f"Cycle {cycle.number} {_STATES.get(cycle.outcome, cycle.outcome)}", cycle.verdict or {}
    reason = verdict.get("reason") or cycle.decision_reason
    if cycle.status == "rejected" and verdict.get("passed"):
        opening, reason = f"{opening}, although it passed the gate", cycle.decision_reason
    return join([opening, ": ", bdi(reason, 200)] if reason and cycle.status == "rejected" else [opening])


def measures(cycle: Cycle, trail: Trail, clean: Mark | None) -> Markup:
    """One line a measure: its scores along the cycle, the gate's limit and whether it was met."""
    judged = {line.measure: line for line in measure_lines(cycle.verdict)}
    rows = []
    for measure, name in MEASURES.items() if trail.damaged or trail.recovered else ():
        line = judged.get(measure) or MeasureLine(measure, name, None, "")
        values = stage_values(trail, measure)
        if measure == EARLIER_KNOWLEDGE and line.is_judged:  # the limit is of one of these cycles
            values = [line.before, line.after]
        level = clean.level(measure) if clean and measure in RELATIVE else None
        differs = level is not None and level != trail.start.level(measure)
        if values or line.word:
            rows.append((line, " → ".join(values), f"{level.value:.3f}" if level and differs else ""))
    return _html.measures(rows, [line for line in judged.values() if line.details])


def stage_values(trail: Trail, measure: str) -> list[str]:
    """The values of one measure along a trail."""
    levels = [mark.level(measure) for mark in trail.marks]
    return [f"{level.value:.3f}" for level in levels if level is not None]


def cost(cycle: Cycle, runs: Sequence[Run], work_seconds: Mapping[int, float]) -> Cost:
    """`work_seconds` by run: the time between start and end would include the nights that an interrupted run waited."""
    stages = {"mid-training": cycle.damaged, "distillation": cycle.recovered}
    steps = {name: stage.checkpoint.step or 0 for name, stage in stages.items() if stage.checkpoint}
    seconds = [work_seconds[run.id] for run in runs if run.cycle == cycle.number and run.id in work_seconds]
    return Cost(steps, timedelta(seconds=sum(seconds)) if seconds else None)


def step_seconds(metrics: Mapping[str, Series]) -> dict[str, float]:
    """What the steps of a run took together, by part."""
    return {name: sum(value for _, value in metrics.get(name, ()) if isfinite(value)) for name in STEP_SECONDS}


def step_times(metrics: Mapping[str, Series]) -> str:
    seconds = step_seconds(metrics)
    parts = [(name.removesuffix("_seconds"), timedelta(seconds=total)) for name, total in seconds.items() if total]
    return "steps: " + ", ".join(f"{name} {duration(time)}" for name, time in parts) if parts else ""


def _gate(cycle: Cycle) -> dict[str, float]:
    """The scores needed for promotion; of several earlier cycles there is none for all."""
    limits = {line.name: float(line.limit) for line in measure_lines(cycle.verdict) if line.is_judged}
    return {axis: limits[name] for axis in NAMES if (name := MEASURES[axis]) in limits}


def _mark(name: str, stage: Stage, drift: Mapping[int, Mapping[str, Score]] | None = None) -> Mark | None:
    levels = _levels(stage.scores)
    return Mark(name, levels | _drift(stage, drift or {})) if levels else None


def _drift(stage: Stage, drift: Mapping[int, Mapping[str, Score]]) -> dict[str, Level]:
    return _levels(
        {metric: score for metric, score in drift.get(stage.checkpoint_id or 0, {}).items() if metric in DRIFT}
    )


def _levels(scores: Mapping[str, Headline | None] | Mapping[str, Score]) -> dict[str, Level]:
    return {name: level for name, score in scores.items() if (level := level_of(score))}


def level_of(score: Headline | Score | None) -> Level | None:
    if score is None or score.value is None:
        return None
    if isinstance(score, Headline):
        return Level(score.value, score.low, score.high, score.n, score.evaluation, score.items)
    return Level(score.value, score.low, score.high, score.n, score.evaluation_id)


def task_name(task: Task) -> str:
    """As the page of comparisons has it in its address."""
    return " · ".join(task)


def latest_evaluations(reader: Reader, checkpoint: Checkpoint, cycle: int | None) -> dict[Task, Evaluation]:
    """The last evaluation of each task, of those that the cycle used where there are such."""

    def order(evaluation: Evaluation) -> tuple[bool, int]:
        return evaluation.settings.get("part") != PROBE, precedence(evaluation.cycle, cycle)

    latest: dict[Task, Evaluation] = {}
    for evaluation in sorted(reader.evaluations(checkpoint.id), key=order):
        key = (evaluation.suite, evaluation.task, evaluation.data)
        latest.pop(key, None)  # so that the order is that of the evaluations which count
        latest[key] = evaluation
    return latest


def decided_by(cycle: Cycle) -> str:
    """How many items would decide an inconclusive cycle, else an empty text."""
    if cycle.outcome != "inconclusive":
        return ""
    bounds = {items: (cycle.verdict or {}).get(name) for name, items in ITEMS.items()}
    texts = [needed_text(bound, items) for items, bound in bounds.items() if bound]
    return "; ".join(filter(None, texts))


def outcome_text(cycle: Cycle) -> str:
    return "; ".join(filter(None, [_OUTCOMES.get(cycle.status), decided_by(cycle)]))


def against_gate(newest_first: Sequence[Promotion], checkpoint: Checkpoint | None) -> Markup:
    """Who put a checkpoint into use against the gate, when and why; empty if nobody did."""
    promotion = promotion_against_gate(newest_first, checkpoint.id) if checkpoint else None
    return _html.against_gate(promotion) if promotion else Markup()
