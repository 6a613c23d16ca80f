"""When a distillation has done enough, costs too much, or goes astray. Everything it decides by is in its notes, so a
resumed run decides as the unbroken one would have."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from pipelines.settings import Distill
from recovery.telemetry.step_record import StepRecord

HOLDS_IN_A_ROW = 2
WINDOW = 5  # steps whose mean is compared with the first ones'


@dataclass(frozen=True)
class Probe:
    """A look at the probe set: scores, how much behaviour is lost against the clean model, and whether that will do."""

    behaviour: float
    knowledge: float | None
    lost: float
    holds: bool


Look = Callable[[float | None], Probe]  # given the best knowledge seen so far


@dataclass
class Notes:
    seconds: float = 0.0
    flops: float = 0.0
    tokens: int = 0
    holds_in_a_row: int = 0
    best_knowledge: float | None = None
    warm: dict[str, Any] | None = None
    kl: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    truncated: list[float] = field(default_factory=list)


class Watch:
    def __init__(self, limits: Distill | None = None, look: Look | None = None):
        self.limits, self.look, self.notes = limits, look, Notes()
        self.collapsed = False

    def restore(self, notes: dict[str, Any]) -> None:
        self.notes = Notes(**notes)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self.notes)

    def after(self, record: StepRecord, steps: int) -> tuple[Probe | None, str]:
        """(what was seen, if it was time to look; why to stop, if so)."""
        notes, limits = self.notes, self.limits
        notes.seconds += record.rollout_seconds + record.teacher_seconds + record.update_seconds
        notes.flops += record.flops
        notes.tokens += record.target_tokens
        if limits is None:
            return None, ""
        for kept, value in (
            (notes.kl, record.kl),
            (notes.entropy, record.entropy),
            (notes.truncated, record.truncated),
        ):
            if value is not None:
                kept.append(value)
        if reason := self._astray():
            self.collapsed = True
            return None, reason
        if limits.max_minutes and notes.seconds > 60 * limits.max_minutes:
            return None, f"its {limits.max_minutes:g} minutes are spent"
        if limits.max_flops and notes.flops > limits.max_flops:
            return None, f"its {limits.max_flops:.3g} FLOPs are spent"
        done = record.step + 1
        if self.look is None or not limits.probe_every or done % limits.probe_every or done == steps:
            return None, ""
        return self.probed()

    def probed(self) -> tuple[Probe, str]:
        assert self.look is not None
        probe = self.look(self.notes.best_knowledge)
        self.notes.best_knowledge = max(
            (k for k in (probe.knowledge, self.notes.best_knowledge) if k is not None), default=None
        )
        self.notes.holds_in_a_row = self.notes.holds_in_a_row + 1 if probe.holds else 0
        enough = self.notes.holds_in_a_row >= HOLDS_IN_A_ROW
        return probe, f"the probe set was satisfied {HOLDS_IN_A_ROW} times in a row" if enough else ""

    def _astray(self) -> str:
        """Signs that training runs away from the teacher, each against how it began."""
        notes = self.notes
        if _ran(notes.kl, times=2.0, least=0.5):
            return "its KL to the teacher doubled instead of falling"
        if _ran(notes.entropy, times=2.0, least=1.0):
            return "the student's entropy ran away"
        if _ran(notes.truncated, times=1.5, least=0.5):
            return "most of its rollouts no longer end"
        return ""


def _ran(values: list[float], times: float, least: float) -> bool:
    if len(values) < 2 * WINDOW:
        return False
    first, last = fmean(values[:WINDOW]), fmean(values[-WINDOW:])
    return last > least and last > times * first
