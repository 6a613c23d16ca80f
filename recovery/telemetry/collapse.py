"""Signs that a distillation runs away from its teacher, each compared with the first steps of the run.

for record in train(...):
    if reason := watch.after_step(record):
        break
"""

from dataclasses import dataclass, field
from statistics import fmean

from recovery.telemetry.step_record import StepRecord


@dataclass(frozen=True)
class Sign:
    metric: str
    reason: str
    factor: float  # the mean of the last steps is above the mean of the first by this factor,
    threshold: float  # and above this value
    steps: int = 5  # in each mean
    unless_kl_falls: bool = False


SIGNS = (
    Sign("kl", "the KL to the teacher doubled instead of falling", 2.0, 0.5),
    # A student that knows its documents by heart has a low entropy, which rises again as it nears its teacher.
    Sign("entropy", "the student's entropy doubled", 2.0, 1.0, unless_kl_falls=True),
    Sign("repetition", "the rollouts repeat themselves", 2.0, 0.3, steps=3),
    Sign("truncated", "most rollouts no longer end", 1.5, 0.5, steps=3),
)


@dataclass
class CollapseWatch:
    """Collects what the signs compare. With its history saved, a resumed run decides as an unbroken one."""

    history: dict[str, list[float]] = field(default_factory=lambda: {sign.metric: [] for sign in SIGNS})

    def after_step(self, record: StepRecord) -> str:
        """Return the first sign that shows, as part of a sentence; empty if none does."""
        for metric, values in self.history.items():
            if (value := getattr(record, metric)) is not None:
                values.append(value)
        return next((sign.reason for sign in SIGNS if self._shows(sign)), "")

    def _shows(self, sign: Sign) -> bool:
        if len(self.history[sign.metric]) < 2 * sign.steps or (sign.unless_kl_falls and self._kl_falls(sign.steps)):
            return False
        first, last = self._means(sign.metric, sign.steps)
        return last > sign.threshold and last > sign.factor * first

    def _kl_falls(self, steps: int) -> bool:
        first, last = self._means("kl", steps) if self.history["kl"] else (0.0, 0.0)
        return last < first

    def _means(self, metric: str, steps: int) -> tuple[float, float]:
        values = self.history[metric]
        return fmean(values[:steps]), fmean(values[-steps:])
