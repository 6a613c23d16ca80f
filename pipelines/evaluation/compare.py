"""Two checkpoints on the same items: what was lost, what was gained, and whether chance would do as much.

Where the clean base was asked the same, what each of the two has forgotten of it, and what came back between them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evals.results import Metric, Result
from evals.stats.forgetting import ForgettingSummary, TaskForgetting, measure_forgetting, recovered_share
from evals.stats.paired_tests import PairedTest, paired_test

NEVER_HAD = "knowledge"  # of the new documents: the clean base cannot have forgotten it


@dataclass(frozen=True)
class Forgot:
    """Of what the clean base could do at one task."""

    one: TaskForgetting
    other: TaskForgetting
    recovered: Metric  # of what `one` lost, the share that `other` has again

    def line(self) -> str:
        back = self.recovered
        low, high = back.ci95
        sure = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
        came_back = "" if math.isnan(back.value) else f"; {back.value:.2f}{sure} of the loss came back"
        a, b = self.one, self.other
        return (
            f"{'':<16} forgotten of {a.before:.3f} (n = {a.flips.n}): {a.forgetting:+.3f} → {b.forgetting:+.3f}, "
            f"retained {a.retention:.3f} → {b.retention:.3f}{came_back}"
        )


@dataclass(frozen=True)
class Compared:
    task: str
    suite: str
    one: float
    other: float
    pair: PairedTest
    clean: float | None = None
    forgot: Forgot | None = None
    graded: bool = False  # not passed or failed: then the pairs say nothing, and no item is called lost or gained

    @property
    def difference(self) -> float:
        return self.other - self.one if self.graded else self.pair.difference

    def as_json(self) -> dict[str, Any]:
        p, f = self.pair, self.forgot
        by_pairs = {
            "difference": self.difference,
            "bounds": [p.low, p.high],
            "n": p.n,
            "lost": len(p.lost),
            "gained": len(p.gained),
            "p_value": p.p_value,
        }
        if self.graded:
            by_pairs |= dict.fromkeys(("bounds", "lost", "gained", "p_value"))
        return {
            "task": self.task,
            "suite": self.suite,
            "one": self.one,
            "other": self.other,
            **by_pairs,
            "clean": self.clean,
            "forgetting": {"one": f.one.forgetting, "other": f.other.forgetting, "n": f.one.flips.n} if f else None,
            "retention": {"one": _finite(f.one.retention), "other": _finite(f.other.retention)} if f else None,
            "recovered": None if f is None or math.isnan(f.recovered.value) else f.recovered.to_json(),
        }

    def lines(self) -> list[str]:
        told = f"{self.task:<16} {self.one:.3f} → {self.other:.3f}  {self.difference:+.3f}  {self._by_pairs()}"
        return [told, self.forgot.line()] if self.forgot else [told]

    def _by_pairs(self) -> str:
        p = self.pair
        if self.graded:
            return f"over {p.n}, which are graded, not passed or failed: whether it could be chance is not known"
        sure = "" if p.p_value < 0.05 else "  (could be chance)"
        return f"lost {len(p.lost)}, gained {len(p.gained)} of {p.n}, p = {p.p_value:.3f}{sure}"


def compared(one: Sequence[Result], other: Sequence[Result], clean: Sequence[Result] = ()) -> list[Compared]:
    """Task by task, those that both were measured by."""
    after, before = ({_asked(r): r for r in results} for results in (other, clean))
    pairs = [(a, after[_asked(a)]) for a in one if _asked(a) in after and _share_items(a, after[_asked(a)])]
    cleans = [c if (c := before.get(_asked(a))) and _share_items(c, a, b) else None for a, b in pairs]
    return [
        Compared(
            a.task,
            a.suite,
            a.headline.value,
            b.headline.value,
            paired_test(a.passed_by_key(), b.passed_by_key()),
            c.headline.value if c else None,
            _forgot(c, a, b) if c and a.suite != NEVER_HAD else None,
            not (a.is_pass_rate and b.is_pass_rate),
        )
        for (a, b), c in zip(pairs, cleans, strict=True)
    ]


def means(found: Iterable[Compared]) -> dict[str, dict[str, float | None] | None]:
    """Forgetting and retention of each side, over the tasks that the clean base was measured by."""
    known = [c.forgot for c in found if c.forgot]
    sides = {"one": ForgettingSummary([f.one for f in known]), "other": ForgettingSummary([f.other for f in known])}
    return {
        name: {side: _finite(getattr(summary, name)) for side, summary in sides.items()} if known else None
        for name in ("forgetting", "retention")
    }


def in_words(mean: dict[str, dict[str, float | None] | None]) -> list[str]:
    forgetting, retention = mean["forgetting"], mean["retention"]
    if not forgetting or not retention:
        return []
    lost, left = (
        " → ".join("-" if of[side] is None else f"{of[side]:.3f}" for side in ("one", "other"))
        for of in (forgetting, retention)
    )
    return [f"{'in the mean':<16} forgotten {lost}, retained {left}"]


def _forgot(clean: Result, one: Result, other: Result) -> Forgot:
    first, second = (measure_forgetting([clean], [side]).tasks[0] for side in (one, other))
    by_items = all(result.is_pass_rate for result in (clean, one, other))
    unknown = Metric(math.nan, first.flips.n, math.nan, (math.nan, math.nan))
    return Forgot(first, second, recovered_share(clean, one, other) if by_items else unknown)


def _share_items(*results: Result) -> bool:
    return bool(set.intersection(*(set(r.passed_by_key()) for r in results)))


def _asked(result: Result) -> tuple[str, str, str]:
    return result.suite, result.task, result.data


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
