"""Compare two checkpoints on the same items: what was lost and gained, and whether that may be chance.

Where the clean model was measured too: what each checkpoint has forgotten, and how much of the loss was recovered.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evals.forgetting import TaskForgetting, recovered_share, shared_score, task_forgetting
from evals.results import Metric, Result, finite
from evals.stats.paired_comparison import PairedTest, paired_test

NOT_FORGETTABLE = "knowledge"  # of the new documents, which the clean model never had

SideMeans = dict[str, float | None]  # by side: "first", "second"


@dataclass(frozen=True)
class ForgettingPair:
    """What the two checkpoints have forgotten of one task, compared with the clean model."""

    first: TaskForgetting
    second: TaskForgetting
    recovered: Metric  # the share of the first one's loss that the second one has recovered

    def line(self) -> str:
        low, high = self.recovered.ci95
        interval = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
        share = self.recovered.value
        recovered = "" if math.isnan(share) else f"; {share:.2f}{interval} of the loss recovered"
        a, b = self.first, self.second
        return (
            f"{'':<16} forgotten of {a.before:.3f} (n = {a.flips.n}): {a.forgetting:+.3f} → {b.forgetting:+.3f}, "
            f"retained {a.retention:.3f} → {b.retention:.3f}{recovered}"
        )


@dataclass(frozen=True)
class Comparison:
    task: str
    suite: str
    first: float
    second: float
    pair: PairedTest
    clean: float | None = None
    forgetting: ForgettingPair | None = None
    graded: bool = False  # items have grades instead of passes: then nothing is counted as lost or gained

    @property
    def difference(self) -> float:
        return self.second - self.first if self.graded else self.pair.difference

    def as_json(self) -> dict[str, Any]:
        p, f = self.pair, self.forgetting
        paired_tests = {
            "difference": self.difference,
            "bounds": [p.low, p.high],
            "n": p.n,
            "lost": len(p.lost),
            "gained": len(p.gained),
            "p_value": p.p_value,
        }
        if self.graded:
            paired_tests |= dict.fromkeys(("bounds", "lost", "gained", "p_value"))
        forgetting = {"first": f.first.forgetting, "second": f.second.forgetting, "n": f.first.flips.n} if f else None
        return {
            "task": self.task,
            "suite": self.suite,
            "first": self.first,
            "second": self.second,
            **paired_tests,
            "clean": self.clean,
            "forgetting": forgetting,
            "retention": {"first": finite(f.first.retention), "second": finite(f.second.retention)} if f else None,
            "recovered": None if f is None or math.isnan(f.recovered.value) else f.recovered.to_json(),
        }

    def lines(self) -> list[str]:
        scores = f"{self.task:<16} {self.first:.3f} → {self.second:.3f}  {self.difference:+.3f}  {self._counts()}"
        return [scores, self.forgetting.line()] if self.forgetting else [scores]

    def _counts(self) -> str:
        p = self.pair
        if self.graded:
            return f"{p.n} items with grades instead of passes, so there is no test whether this is chance"
        chance = "" if p.p_value < 0.05 else "  (may be chance)"
        return f"lost {len(p.lost)}, gained {len(p.gained)} of {p.n}, p = {p.p_value:.3f}{chance}"


def compare_results(
    first: Sequence[Result], second: Sequence[Result], clean: Sequence[Result] = ()
) -> list[Comparison]:
    seconds, cleans = ({r.id: r for r in results} for results in (second, clean))
    comparisons = []
    for a in first:
        b, c = seconds.get(a.id), cleans.get(a.id)
        if b is not None and _share_items(a, b):
            comparisons.append(_comparison(a, b, c if c is not None and _share_items(c, a, b) else None))
    return comparisons


def mean_forgetting(comparisons: Iterable[Comparison]) -> dict[str, SideMeans | None]:
    """The mean `forgetting` and `retention` of both checkpoints over the tasks that the clean model was measured on;
    None without such a task. A task whose score before was 0 has no retention."""
    tasks = [c.forgetting for c in comparisons if c.forgetting]
    if not tasks:
        return {"forgetting": None, "retention": None}
    sides = {"first": [t.first for t in tasks], "second": [t.second for t in tasks]}
    return {
        "forgetting": {side: _mean([t.forgetting for t in of]) for side, of in sides.items()},
        "retention": {side: _mean([t.retention for t in of if t.before]) for side, of in sides.items()},
    }


def mean_lines(means: dict[str, SideMeans | None]) -> list[str]:
    forgetting, retention = means["forgetting"], means["retention"]
    if not forgetting or not retention:
        return []
    lost, retained = (
        " → ".join("-" if value is None else f"{value:.3f}" for value in (mean["first"], mean["second"]))
        for mean in (forgetting, retention)
    )
    return [f"{'mean':<16} forgotten {lost}, retained {retained}"]


def _comparison(first: Result, second: Result, clean: Result | None) -> Comparison:
    others = second.passed_by_key()
    common = replace(first, items=[item for item in first.items if item.key in others])
    return Comparison(
        first.task,
        first.suite,
        shared_score(first, second),
        shared_score(second, first),
        paired_test(first.passed_by_key(), second.passed_by_key()),
        finite(shared_score(clean, common)) if clean else None,
        _forgetting(clean, first, second) if clean and first.suite != NOT_FORGETTABLE and clean.is_share else None,
        not (first.is_pass_rate and second.is_pass_rate),
    )


def _forgetting(clean: Result, first: Result, second: Result) -> ForgettingPair | None:
    """None where only some items are shared and the score is no mean of its items."""
    a, b = (task_forgetting(clean, result) for result in (first, second))
    if any(math.isnan(score) for task in (a, b) for score in (task.before, task.after)):
        return None
    if all(result.is_pass_rate for result in (clean, first, second)):
        return ForgettingPair(a, b, recovered_share(clean, first, second))
    return ForgettingPair(a, b, Metric(math.nan, a.flips.n, math.nan, (math.nan, math.nan)))


def _share_items(*results: Result) -> bool:
    return bool(set.intersection(*(set(r.passed_by_key()) for r in results)))


def _mean(values: Sequence[float]) -> float | None:
    return finite(math.fsum(values) / len(values)) if values else None
