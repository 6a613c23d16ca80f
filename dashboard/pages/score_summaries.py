"""What the record's numbers say: trails for the charts, sentences and shares for the words around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dashboard.ui.charts import NAMES, Axis, Level, Mark, Trail, ending
from db.views import Cycle, Run, Score, Stage


@dataclass(frozen=True)
class Cost:
    steps: dict[str, int]
    """Optimiser steps by kind of run."""
    time: timedelta | None
    """What steps and measurements took; None where none of them said."""

    @property
    def total(self) -> int:
        return sum(self.steps.values())


def trails(cycles: Sequence[Cycle], stages: Sequence[Stage]) -> list[Trail]:
    """Each cycle from the checkpoint it started at, one of the project's `stages`, to what it ended with.

    What was known before is what the clean model knows of these very documents; nobody else was asked.
    """
    known = {stage.checkpoint.id: stage for stage in stages if stage.checkpoint}
    told = []
    for cycle in cycles:
        parent = cycle.damaged.checkpoint.parent_id if cycle.damaged.checkpoint else None
        from_clean = parent is None or parent == _id(cycle.clean)
        start = cycle.clean if from_clean else known.get(parent or 0, cycle.clean)
        name = "clean" if start is cycle.clean else f"before cycle {cycle.number}"
        # Until the cycle has measured something, the latest answers are to another cycle's questions.
        asked = cycle.clean.scores.get("knowledge") if cycle.damaged.scores else None
        before = Mark(name, _level(start.scores.get("behaviour")), _level(asked))
        damaged, recovered = (_mark(f"cycle {cycle.number} {word}", stage) for word, stage in _named(cycle))
        told.append(Trail(cycle.number, cycle.outcome, before, damaged, recovered, _gate(cycle)))
    return told


def clean_mark(cycles: Sequence[Cycle]) -> Mark | None:
    return _mark("clean", cycles[-1].clean) if cycles else None


def headline(trail: Trail, clean: Mark | None) -> tuple[str, list[tuple[Axis, str, str, str]]]:
    """The sentence on a cycle: its opening, then (axis, words, numbers, aside) for a page to colour."""
    state = {"open": "is under way"}.get(trail.status, trail.status)
    pieces: list[tuple[Axis, str, str, str]] = []
    for axis in NAMES if trail.damaged or trail.recovered else ():
        numbers = " → ".join(way(trail, axis))
        elsewhere = (
            clean and axis == "behaviour" and clean.behaviour != (trail.start.behaviour if trail.start else None)
        )
        level = clean.behaviour if clean and elsewhere else None
        if numbers:
            pieces.append((axis, NAMES[axis].lower(), numbers, f" (clean {level.value:.3f})" if level else ""))
    return f"Cycle {trail.number} {state}", pieces


def way(trail: Trail, axis: Axis) -> list[str]:
    """The values along a trail."""
    levels = [mark.level(axis) for mark in (trail.start, trail.damaged, trail.recovered) if mark is not None]
    return [f"{level.value:.3f}" for level in levels if level is not None]


def share(start: Level | None, middle: Level | None, end: Level | None) -> float | None:
    """How much of the way from `start` to `middle` the `end` still is, or has come back: 0 at middle, 1 at start."""
    if start is None or middle is None or end is None or start.value == middle.value:
        return None
    return (end.value - middle.value) / (start.value - middle.value)


def cost(cycle: Cycle, runs: Sequence[Run], worked: Mapping[int, float]) -> Cost:
    """`worked` has the seconds of each run: from its start to its end a run may have lain for a night."""
    stages = {"mid-training": cycle.damaged, "distillation": cycle.recovered}
    steps = {kind: stage.checkpoint.step or 0 for kind, stage in stages.items() if stage.checkpoint}
    spent = [worked[run.id] for run in runs if run.cycle == cycle.number and run.id in worked]
    return Cost(steps, timedelta(seconds=sum(spent)) if spent else None)


def forgotten(clean: Mapping[str, bool | None], now: Mapping[str, bool | None]) -> tuple[int, int]:
    """Of the items that the clean model passed and both were asked: how many fail now, and how many those are."""
    asked = [key for key, passed in clean.items() if passed and key in now]
    return sum(not now[key] for key in asked), len(asked)


def _gate(cycle: Cycle) -> dict[Axis, float]:
    """The verdict says how far from the clean model the behaviour may be, and what the knowledge must be at least."""
    clean = _level(cycle.clean.scores.get("behaviour"))
    zero: dict[Axis, float | None] = {"behaviour": clean.value if clean else None, "knowledge": 0.0}
    said = {axis: (cycle.verdict or {}).get(axis) for axis in NAMES}
    limits = {axis: bound.get("limit") for axis, bound in said.items() if isinstance(bound, dict)}
    return {
        axis: start + limit
        for axis, limit in limits.items()
        if isinstance(limit, int | float) and (start := zero[axis]) is not None
    }


def _id(stage: Stage) -> int | None:
    return stage.checkpoint.id if stage.checkpoint else None


def _named(cycle: Cycle) -> list[tuple[str, Stage]]:
    return [("mid-trained", cycle.damaged), (ending(cycle.outcome), cycle.recovered)]


def _mark(name: str, stage: Stage) -> Mark | None:
    behaviour, knowledge = _level(stage.scores.get("behaviour")), _level(stage.scores.get("knowledge"))
    return Mark(name, behaviour, knowledge) if behaviour or knowledge else None


def _level(score: Score | None) -> Level | None:
    return None if score is None or score.value is None else Level(score.value, score.low, score.high)
