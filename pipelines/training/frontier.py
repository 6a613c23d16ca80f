"""The checkpoints of a distillation's probes between which only a person can choose: each has something that none of
the others has.

A probe is a small sample, so a difference within its standard error counts as none: of two points that are as good, the
earlier one stays. Never more than `keep` points are on disk, whatever comes later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class FrontierPoint:
    """A probe of the student after a number of steps."""

    step: int
    scores: Mapping[str, float]  # by measure
    errors: Mapping[str, float] = field(default_factory=dict)  # standard errors

    def covers(self, other: "FrontierPoint") -> bool:
        """Whether it is at least as good in every measure, within the standard error of the difference."""
        return all(self.scores.get(m, -math.inf) >= value - self._error(other, m) for m, value in other.scores.items())

    def _error(self, other: "FrontierPoint", measure: str) -> float:
        return math.hypot(self.errors.get(measure, 0.0), other.errors.get(measure, 0.0))

    @property
    def total(self) -> float:
        return math.fsum(self.scores.values())


@dataclass
class Frontier:
    """The kept points of one run, by step."""

    keep: int
    points: list[FrontierPoint] = field(default_factory=list)

    @classmethod
    def from_json(cls, keep: int, stored: Sequence[Mapping[str, Any]]) -> Self:
        return cls(keep, [FrontierPoint(**point) for point in stored])

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(point) for point in self.points]

    def points_with(self, new: FrontierPoint) -> list[FrontierPoint]:
        """The points to keep once there is a new one."""
        if not self.keep or any(point.covers(new) for point in self.points):
            return self.points
        return self._best([*self.points_beside(new), new])

    def points_beside(self, end: FrontierPoint) -> list[FrontierPoint]:
        """The points to keep beside a checkpoint that is kept anyway."""
        return [point for point in self.points if not end.covers(point)]

    def _best(self, points: list[FrontierPoint]) -> list[FrontierPoint]:
        """At most `keep` points: the best of each measure first, then those with the highest sum."""
        measures = points[0].scores
        extremes = [max(points, key=lambda p: (p.scores.get(m, -math.inf), p.total)) for m in measures]
        by_total = sorted(points, key=lambda p: -p.total)
        chosen = list({point.step: point for point in (*extremes, *by_total)}.values())[: self.keep]
        return sorted(chosen, key=lambda p: p.step)
