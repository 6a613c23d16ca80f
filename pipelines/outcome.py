"""The result of a cycle or of a distillation alone, and the decision about it."""

from dataclasses import dataclass
from typing import Any

from db.next_attempt import NextAttempt
from evals.results import Result, headlines
from pipelines.evaluation.checkpoint_measurement import earlier_results
from pipelines.gate.verdict import Verdict
from pipelines.training.training_run import RunResult


@dataclass(frozen=True)
class Answer:
    """A decision about a verdict."""

    promote: bool
    reason: str


@dataclass(frozen=True)
class Outcome:
    cycle: int  # its number, 0 for a repair outside any cycle
    clean: list[Result]
    damaged: list[Result]
    recovered: list[Result]
    verdict: Verdict
    promoted: bool
    distilled: RunResult
    decision: str  # for people to read
    next_attempt: NextAttempt | None = None  # what to try after a rejection

    def as_json(self) -> dict[str, Any]:
        checkpoint, run = self.distilled.checkpoint, self.distilled
        clean, damaged, recovered = (headlines(results) for results in (self.clean, self.damaged, self.recovered))
        return {
            "cycle": self.cycle or None,
            "clean": clean,
            "damaged": damaged,
            "recovered": recovered,
            "earlier": {str(n): result.headline.value for n, result in earlier_results(self.recovered).items()},
            "verdict": self.verdict.as_dict(),
            "promoted": self.promoted,
            "checkpoint": checkpoint.reference,
            "path": checkpoint.path,
            "steps": run.steps,
            "stopped": run.stopped or None,
            "next_attempt": self.next_attempt.command if self.next_attempt else None,
            "warm_start": run.warm_start,
            "cost": {"seconds": round(run.seconds, 1)},
        }
