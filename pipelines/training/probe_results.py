"""What a probe returns: scores on a small set of items that the verdict does not use."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from evals.results import Metric


@dataclass(frozen=True)
class Score:
    value: float
    stderr: float

    @classmethod
    def of(cls, metric: Metric) -> Self:
        return cls(metric.value, metric.stderr if math.isfinite(metric.stderr) else 0.0)


@dataclass(frozen=True)
class ProbeResult:
    """A probe during distillation, compared with the clean model."""

    behaviour: float
    knowledge: float | None
    lost: float  # what is missing against the clean model, of instruction following or of what it knew before
    holds: bool  # whether the gate's limits are met on the probe set
    retention: float | None = None  # what it knew before; in a repair, and where checkpoints of probes are kept
    errors: Mapping[str, float] = field(default_factory=dict)  # standard errors by measure
    floor: float = 0.0  # the knowledge of a model that was taught nothing

    @property
    def scores(self) -> dict[str, float | None]:
        scores = {"behaviour": self.behaviour, "knowledge": self.knowledge}
        return scores if self.retention is None else scores | {"retention": self.retention}

    @property
    def measured(self) -> dict[str, float]:
        """The scores that there are, by measure."""
        scores = self.scores | {"retention": self.retention}
        return {name: value for name, value in scores.items() if value is not None}

    def __str__(self) -> str:
        knowledge = "" if self.knowledge is None else f" · knowledge {self.knowledge:.3f}"
        retention = "" if self.retention is None else f" · retention {self.retention:.3f}"
        return f"behaviour {self.behaviour:.3f}{knowledge}{retention}"


ProbeFunction = Callable[[float | None], ProbeResult]  # given the best knowledge of earlier probes


def best_knowledge(*scores: float | None) -> float | None:
    return max((score for score in scores if score is not None), default=None)
