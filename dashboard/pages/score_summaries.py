"""The record's scores as trails for the charts, and as text and shares for the pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dashboard.ui.charts.checkpoint_trails import Level, Mark, Trail, end_name
from dashboard.ui.charts.figure import NAMES, Axis
from db.headline_scores import MEASURES
from db.tables import Cycle, Headline, Run, Stage

RELATIVE = ("behaviour", "retention")  # measures that are compared with the clean model


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
