"""A cycle as the charts see it: a trail of up to three measured checkpoints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.ui.charts.figure import Axis, Look

NOT_PROMOTED = ("rejected", "inconclusive")
SCORE_AXIS = dict(tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1], tickformat=".1f")


@dataclass(frozen=True)
class Level:
    """A score and, if known, its 95 % confidence interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" (95 %: {self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True)
class Mark:
    """One measured checkpoint. The charts draw the first two measures, the pages show all four."""

    name: str
    behaviour: Level | None = None
    knowledge: Level | None = None
    earlier: Level | None = None
    retention: Level | None = None

    def level(self, measure: str) -> Level | None:
        levels = {name: getattr(self, name) for name in ("behaviour", "knowledge", "earlier", "retention")}
        return levels[measure]


@dataclass(frozen=True)
class Trail:
    """One cycle: its starting checkpoint, then after mid-training, then after distillation."""

    number: int
    status: str
    start: Mark
    damaged: Mark | None = None
    recovered: Mark | None = None
    gate: Mapping[Axis, float] = field(default_factory=dict)  # the scores needed for promotion

    @property
    def marks(self) -> list[Mark]:
        return [mark for mark in (self.start, self.damaged, self.recovered) if mark is not None]

    def keeps(self, mark: Mark) -> bool:
        """False for the end of a cycle that was not promoted: it is rolled back."""
        return not (self.status in NOT_PROMOTED and mark is self.recovered)


def end_name(status: str) -> str:
    """The name of the checkpoint at the end of a cycle."""
    return status if status in NOT_PROMOTED else "recovered"


def clean_line(clean: Mark | None, axis: Axis, look: Look) -> Iterator[dict[str, Any]]:
    """A dotted line at the clean model's score, if that is known."""
    if clean is not None and (level := clean.level(axis)) is not None:
        line = dict(type="line", xref="paper", x0=0, x1=1, y0=level.value, y1=level.value)
        yield line | dict(line=dict(color=look.palette.of(axis), width=1, dash="dot"), opacity=0.75)
