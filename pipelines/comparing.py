"""Two checkpoints on the same items: what was lost, what was gained, and whether chance would do as much."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evals.results import Result
from evals.statistics import Paired, paired


@dataclass(frozen=True)
class Compared:
    task: str
    suite: str
    one: float
    other: float
    pair: Paired

    def as_json(self) -> dict[str, Any]:
        p = self.pair
        return {
            "task": self.task,
            "suite": self.suite,
            "one": self.one,
            "other": self.other,
            "difference": p.difference,
            "bounds": [p.low, p.high],
            "n": p.n,
            "lost": len(p.lost),
            "gained": len(p.gained),
            "p_value": p.p_value,
        }

    def line(self) -> str:
        p = self.pair
        sure = "" if p.p_value < 0.05 else "  (could be chance)"
        return (
            f"{self.task:<16} {self.one:.3f} → {self.other:.3f}  {p.difference:+.3f}  lost {len(p.lost)}, gained "
            f"{len(p.gained)} of {p.n}, p = {p.p_value:.3f}{sure}"
        )


def compared(one: Sequence[Result], other: Sequence[Result]) -> list[Compared]:
    """Task by task, those that both were measured by."""
    after = {(r.suite, r.task, r.data): r for r in other}
    pairs = [(r, after[r.suite, r.task, r.data]) for r in one if (r.suite, r.task, r.data) in after]
    return [
        Compared(a.task, a.suite, a.headline.value, b.headline.value, paired(a.passed_by_key(), b.passed_by_key()))
        for a, b in pairs
        if a.items and set(a.passed_by_key()) & set(b.passed_by_key())
    ]
