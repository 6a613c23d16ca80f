"""A cycle in short: its scores as trails for the charts and as text, how it ended, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from markupsafe import Markup

from dashboard.ui.charts.cycles import Level, Mark, Trail, end_name
from dashboard.ui.charts.figure import NAMES, Axis
from dashboard.ui.html import Cell, load
from db.headline_scores import MEASURES
from db.tables import Checkpoint, Cycle, Headline, Promotion, Run, Stage, promotion_against_gate
from db.verdicts import bound_and_margin, losses, relation, replies, with_limit

RELATIVE = ("behaviour", "retention")  # measures that are compared with the clean model
EARLIER_KNOWLEDGE = "earlier"  # key of a verdict, and name of the suite: questions on documents of earlier cycles
DECIDED_BY = {"behaviour": "prompts", "retention": "items on what it knew before"}
_OUTCOMES = {"promoted": "now the current model", "rejected": "not promoted; the previous model stays current"}
_html = load("overview.html")


@dataclass(frozen=True)
class Cost:
    steps: dict[str, int]  # optimiser steps by stage
    time: timedelta | None  # of steps and evaluations; None if none was recorded

    @property
    def total_steps(self) -> int:
        return sum(self.steps.values())


def trails(cycles: Sequence[Cycle], stages: Sequence[Stage]) -> list[Trail]:
    """Each cycle from the checkpoint it started from, one of the project's `stages`, to its end.

    The knowledge at the start is always that of the clean model: only it answers the questions on new documents. That
    of earlier cycles is left out there: the starting checkpoint was not asked about the last one of them.
    """
    by_checkpoint = {stage.checkpoint.id: stage for stage in stages if stage.checkpoint}
    result = []
    for cycle in cycles:
        parent = cycle.damaged.checkpoint.parent_id if cycle.damaged.checkpoint else None
        from_clean = parent is None or parent == _id(cycle.clean)
        start = cycle.clean if from_clean else by_checkpoint.get(parent or 0, cycle.clean)
        name = "clean" if start is cycle.clean else f"before cycle {cycle.number}"
        # Until the cycle has measured something, the latest answers are to another cycle's questions.
        knowledge = cycle.clean.scores.get("knowledge") if cycle.damaged.scores else None
        behaviour, retention = (_level(start.scores.get(measure)) for measure in ("behaviour", "retention"))
        before = Mark(name, behaviour, _level(knowledge), retention=retention)
        damaged = _mark(f"cycle {cycle.number} mid-trained", cycle.damaged)
        recovered = _mark(f"cycle {cycle.number} {end_name(cycle.outcome)}", cycle.recovered)
        result.append(Trail(cycle.number, cycle.outcome, before, damaged, recovered, _gate(cycle)))
    return result


def clean_mark(cycles: Sequence[Cycle]) -> Mark | None:
    return _mark("clean", cycles[-1].clean) if cycles else None


def headline(trail: Trail, clean: Mark | None) -> tuple[str, list[tuple[str, str, str, str]]]:
    """The title of a cycle: its opening, then (measure, name, values, the clean model's value if it differs)."""
    state = {"open": "is under way"}.get(trail.status, trail.status)
    scores: list[tuple[str, str, str, str]] = []
    for measure, name in MEASURES.items() if trail.damaged or trail.recovered else ():
        level = clean.level(measure) if clean and measure in RELATIVE else None
        level = None if level == trail.start.level(measure) else level
        if values := stage_values(trail, measure):
            scores.append((measure, name, " → ".join(values), f"{level.value:.3f}" if level else ""))
    return f"Cycle {trail.number} {state}", scores


def stage_values(trail: Trail, measure: str) -> list[str]:
    """The values of one measure along a trail."""
    levels = [mark.level(measure) for mark in trail.marks]
    return [f"{level.value:.3f}" for level in levels if level is not None]


def recovered_share(start: Level | None, middle: Level | None, end: Level | None) -> float | None:
    """How much of the change from `start` to `middle` the `end` has undone: 0 at `middle`, 1 at `start`."""
    if start is None or middle is None or end is None or start.value == middle.value:
        return None
    return (end.value - middle.value) / (start.value - middle.value)


def cost(cycle: Cycle, runs: Sequence[Run], work_seconds: Mapping[int, float]) -> Cost:
    """`work_seconds` by run: the time between start and end would include the nights that an interrupted run waited."""
    stages = {"mid-training": cycle.damaged, "distillation": cycle.recovered}
    steps = {name: stage.checkpoint.step or 0 for name, stage in stages.items() if stage.checkpoint}
    seconds = [work_seconds[run.id] for run in runs if run.cycle == cycle.number and run.id in work_seconds]
    return Cost(steps, timedelta(seconds=sum(seconds)) if seconds else None)


def count_forgotten(clean: Mapping[str, bool | None], now: Mapping[str, bool | None]) -> tuple[int, int]:
    """Of the items that the clean model passed and both answered: how many fail now, and how many there are."""
    shared = [key for key, passed in clean.items() if passed and key in now]
    return sum(not now[key] for key in shared), len(shared)


def _gate(cycle: Cycle) -> dict[Axis, float]:
    """The scores needed for promotion. The verdict has behaviour relative to the clean model, knowledge as it is."""
    clean = _level(cycle.clean.scores.get("behaviour"))
    zero: dict[Axis, float | None] = {"behaviour": clean.value if clean else None, "knowledge": 0.0}
    bounds = {axis: (cycle.verdict or {}).get(axis) for axis in NAMES}
    limits = {axis: bound.get("limit") for axis, bound in bounds.items() if isinstance(bound, dict)}
    return {
        axis: start + limit
        for axis, limit in limits.items()
        if isinstance(limit, int | float) and (start := zero[axis]) is not None
    }


def _id(stage: Stage) -> int | None:
    return stage.checkpoint.id if stage.checkpoint else None


def _mark(name: str, stage: Stage) -> Mark | None:
    levels = {measure: _level(stage.scores.get(measure)) for measure in MEASURES}
    return Mark(name, **levels) if any(levels.values()) else None


def _level(score: Headline | None) -> Level | None:
    return None if score is None or score.value is None else Level(score.value, score.low, score.high)


class BoundSentence(NamedTuple):
    passed: bool | None  # None: undecided
    text: str


def bound_status(bound: dict[str, Any]) -> bool | None:
    """True: passed, False: failed, None: too few items to decide."""
    return True if bound.get("passed") else None if bound.get("unsure") else False


def needed_text(cycle: Cycle) -> str:
    """How many items would decide an inconclusive cycle, else an empty text."""
    if cycle.outcome != "inconclusive":
        return ""
    bounds = {items: _bound(cycle, name) for name, items in DECIDED_BY.items()}
    counts = {items: (bound.get("needed"), bound.get("n")) for items, bound in bounds.items() if bound.get("unsure")}
    texts = [
        f"about {needed:,} {items} would decide it ({used:,} were used)"
        for items, (needed, used) in counts.items()
        if isinstance(needed, int) and isinstance(used, int) and needed > used
    ]
    return "; ".join(texts)


def outcome_text(cycle: Cycle) -> str:
    return "; ".join(filter(None, [_OUTCOMES.get(cycle.status), needed_text(cycle)]))


def verdict_cell(cycle: Cycle) -> Cell:
    return Cell(_html.badge_with_note(cycle.outcome, needed_text(cycle)), "", cycle.outcome)


def reasons(cycle: Cycle) -> Markup:
    """One sentence for each condition of the gate, or the recorded reason where the numbers are missing."""
    reason = str((cycle.verdict or {}).get("reason") or "").rstrip(".")
    return _html.reasons(list(_sentences(cycle)), reason[:1].upper() + reason[1:])


def against_gate(newest_first: Sequence[Promotion], checkpoint: Checkpoint | None) -> Markup:
    """Who put a checkpoint into use against the gate, when and why; empty if nobody did."""
    promotion = promotion_against_gate(newest_first, checkpoint.id) if checkpoint else None
    return _html.against_gate(promotion) if promotion else Markup()


def earlier_bounds(cycle: Cycle) -> dict[str, dict[str, Any]]:
    """The condition on the knowledge of each earlier cycle's documents, by cycle number."""
    bounds = (cycle.verdict or {}).get(EARLIER_KNOWLEDGE)
    return {str(n): b for n, b in bounds.items() if isinstance(b, dict)} if isinstance(bounds, dict) else {}


def _sentences(cycle: Cycle) -> Iterator[BoundSentence]:
    behaviour = _difference_sentence(_bound(cycle, "behaviour"), "Instruction following", "prompts")
    if behaviour is None:
        return
    verdict = cycle.verdict or {}
    changes = str(verdict.get("changes") or "")[:500]
    yield behaviour._replace(text=f"{behaviour.text} {changes[:1].upper()}{changes[1:]}.") if changes else behaviour
    if "knowledge" in verdict:
        note = " Nothing measurable was learned from them." if verdict.get("learned") is False else ""
        yield _knowledge_sentence(_bound(cycle, "knowledge"), "Knowledge of the documents", note)
    for number, earlier in earlier_bounds(cycle).items():
        yield _knowledge_sentence(earlier, f"Knowledge of cycle {number[:20]}'s documents")
    retention = _bound(cycle, "retention")
    judged = _difference_sentence(retention, "What it knew before", "items", _losses(retention))
    yield judged or BoundSentence(None, "What it knew before was not measured, so it was not judged.")


def _difference_sentence(bound: dict[str, Any], name: str, items: str, changes: str = "") -> BoundSentence | None:
    value, low, limit = (_number(bound.get(key)) for key in ("value", "bound", "limit"))
    n = bound.get("n")
    if value is None or low is None or limit is None or not isinstance(n, int):
        return None
    worst, margin = bound_and_margin(low, limit, bound_status(bound) is True)
    of = bound.get("of")
    is_partial, is_open = isinstance(of, int) and of > n, bound_status(bound) is None
    why = "asked no further, as another limit had failed" if is_open else "which decided"
    asked = f"{n:,} of {of:,} {items}, {why}" if is_partial else f"{n:,} {items}"
    samples = bound.get("samples")
    asked += replies(samples) if isinstance(samples, int) else ""
    by = " by gate.keep_behaviour" if bound.get("setting") == "gate.keep_behaviour" else ""
    text = (
        f"{name} is {relation(value)} the clean model's{changes}, {worst} with 95 % confidence ({asked}); "
        f"the gate allows {margin}{by}."
    )
    if is_open and not is_partial:
        text += f" More {items} are needed to decide."
    return BoundSentence(bound_status(bound), text)


def _losses(retention: dict[str, Any]) -> str:
    """The tasks that lost items, in parentheses."""
    tasks = retention.get("tasks")
    changes = {
        str(task)[:60]: (change["lost"], change["gained"])
        for task, change in (tasks.items() if isinstance(tasks, dict) else ())
        if isinstance(change, dict) and all(isinstance(change.get(key), int) for key in ("lost", "gained"))
    }
    text = losses(changes)
    return f" ({text})" if text else ""


def _knowledge_sentence(bound: dict[str, Any], name: str, note: str = "") -> BoundSentence:
    value, limit = _number(bound.get("value")), _number(bound.get("limit"))
    if value is None or limit is None:
        return BoundSentence(None, f"{name} was not measured, so it was not judged.")
    status = bound_status(bound)
    measured, required = with_limit(value, limit, status is True)
    return BoundSentence(status, f"{name} is {measured}; the gate requires at least {required}.{note}")


def _bound(cycle: Cycle, name: str) -> dict[str, Any]:
    bound = (cycle.verdict or {}).get(name)
    return bound if isinstance(bound, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
