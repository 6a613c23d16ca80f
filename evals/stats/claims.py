"""Verdicts on claims about the difference between two arms, measured on several seeds.

Items of one seed share its world and its training, so seeds are the independent samples. With three of them a
bootstrap over seeds is far too narrow. A bound here joins two errors in quadrature: a t interval on the means of the
seeds, and the error of the items, most of which all seeds share. Part of the second is in the first already, so the
bound errs less often than its level says (tests/evals/stats/test_claims.py simulates it).

The errors of several claims are held together by Holm's correction, for supporting and for refuting alike.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, fmean, stdev
from typing import Literal

from evals.stats.paired_comparison import POWER, bisect
from recovery.errors import RecoverError

Direction = Literal["above", "not below"]
Verdict = Literal["supported", "refuted", "cannot tell", "no verdict"]
MIN_SEEDS = 3
MAX_SEEDS = 100
CENTRE = 0.5  # the level at which a bound is the estimate itself


@dataclass(frozen=True)
class SeedDifferences:
    """The difference of two arms on each seed, and the standard error that comes from the choice of the items."""

    means: tuple[float, ...]
    item_error: float = 0.0
    items: int = 0

    @classmethod
    def of_items(cls, seeds: Sequence[Mapping[str, float]]) -> "SeedDifferences":
        """From the paired differences of each seed, by item. Items of one key are the same item on every seed."""
        if not all(seeds):
            raise RecoverError("Two arms of this study share no item. Measure both on the same data.")
        by_key: dict[str, list[float]] = defaultdict(list)
        for differences in seeds:
            for key, value in differences.items():
                by_key[key].append(value)
        values = [fmean(values) for values in by_key.values()]
        # Two more items, one lost and one gained: without any difference among few items the error is not zero.
        n = len(values) + 2
        mean = math.fsum(values) / n
        spread = (math.fsum(value * value for value in values) + 2) / n - mean * mean
        return cls(tuple(fmean(differences.values()) for differences in seeds), math.sqrt(spread / n), len(values))

    def minus(self, other: "SeedDifferences") -> "SeedDifferences":
        """The difference of two differences on other items, seed by seed."""
        means = tuple(a - b for a, b in zip(self.means, other.means, strict=True))
        return SeedDifferences(means, math.hypot(self.item_error, other.item_error), self.items + other.items)

    @property
    def estimate(self) -> float:
        return fmean(self.means)

    @cached_property  # a p-value takes thirty half widths
    def spread(self) -> float:
        return stdev(self.means)

    def half_width(self, level: float) -> float:
        """The distance from the estimate to a one-sided bound that errs with this probability."""
        if not math.isfinite(self.estimate):  # a model that diverged
            return math.inf
        count = len(self.means)
        between = _t_quantile(1 - level, count - 1) * self.spread / math.sqrt(count)
        return math.hypot(between, NormalDist().inv_cdf(1 - level) * self.item_error)

    def p_above(self, limit: float) -> float:
        """The p-value of the hypothesis that the true difference is at most this."""
        distance = self.estimate - limit
        _, level = bisect(lambda level: not self.half_width(level) < abs(distance), 1e-12, CENTRE, 1e-9)
        return level if distance > 0 else 1 - level


@dataclass(frozen=True)
class Decision:
    """A verdict with the interval that decided it: each end errs with the level that Holm's correction leaves it."""

    verdict: Verdict
    estimate: float
    low: float
    high: float
    p_support: float
    p_refute: float
    needed: str = ""  # what would decide it


@dataclass(frozen=True)
class Hypothesis:
    """`above`: the difference is above zero; the margin is the smallest one that matters. `not below`: it is not below
    zero by the margin or more."""

    differences: SeedDifferences
    direction: Direction
    margin: float
    room: float = math.inf  # the largest difference that the scores of the second arm leave

    @property
    def support_above(self) -> float:
        return 0.0 if self.direction == "above" else -self.margin

    @property
    def refute_below(self) -> float:
        if self.direction == "not below":
            return -self.margin
        return self.margin if self.has_room else 0.0

    @property
    def has_room(self) -> bool:
        """Where the second arm passes nearly all items, none could be better by the margin."""
        return self.direction == "not below" or self.room >= self.margin


def decide(hypotheses: Sequence[Hypothesis], error: float = 0.05) -> list[Decision]:
    """The verdict on each claim of a study. The probability of supporting any claim whose difference is not above its
    limit is at most `error`, and so is that of refuting any that reaches its margin."""
    if any(len(h.differences.means) < MIN_SEEDS for h in hypotheses):
        return [_no_verdict(h.differences) for h in hypotheses]
    support = [h.differences.p_above(h.support_above) for h in hypotheses]
    refute = [1 - h.differences.p_above(h.refute_below) for h in hypotheses]
    support_levels, refute_levels = holm_levels(support, error), holm_levels(refute, error)
    decisions = []
    for number, hypothesis in enumerate(hypotheses):
        sample = hypothesis.differences
        low = sample.estimate - sample.half_width(support_levels[number])
        high = sample.estimate + sample.half_width(refute_levels[number])
        verdict: Verdict = "cannot tell"
        if support[number] < support_levels[number]:
            verdict = "supported"
        elif refute[number] < refute_levels[number]:
            verdict = "refuted"
        needed = _needed(hypothesis, error / len(hypotheses)) if verdict == "cannot tell" else ""
        decisions.append(Decision(verdict, sample.estimate, low, high, support[number], refute[number], needed))
    return decisions


def holm_levels(p_values: Sequence[float], error: float) -> list[float]:
    """The level that decides each hypothesis in Holm's procedure: those after the first that is kept have its level."""
    levels = [0.0] * len(p_values)
    stopped: float | None = None
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        level = stopped or error / (len(p_values) - rank)
        stopped = stopped or (level if p_values[index] >= level else None)
        levels[index] = level
    return levels


def _no_verdict(sample: SeedDifferences) -> Decision:
    needed = f"a verdict needs at least {MIN_SEEDS} seeds, and this has {len(sample.means)}"
    return Decision("no verdict", sample.estimate, math.nan, math.nan, math.nan, math.nan, needed)


def _needed(hypothesis: Hypothesis, level: float) -> str:
    """How many seeds, or else items, would decide the claim if the estimate is the true difference."""
    sample = hypothesis.differences
    if not math.isfinite(sample.estimate):
        return "a number from every arm"
    if not hypothesis.has_room and sample.estimate >= 0:
        return f"harder items: the other arm leaves no more than {hypothesis.room:.3f}"
    distance = max(sample.estimate - hypothesis.support_above, hypothesis.refute_below - sample.estimate)
    power = NormalDist().inv_cdf(POWER)
    if distance <= 0:
        return "no number of seeds: the difference is at its limit"

    def is_enough(seeds: int) -> bool:
        between = (_t_quantile(1 - level, seeds - 1) + power) * sample.spread / math.sqrt(seeds)
        return math.hypot(between, (NormalDist().inv_cdf(1 - level) + power) * sample.item_error) <= distance

    seeds = next((count for count in range(len(sample.means), MAX_SEEDS + 1) if is_enough(count)), None)
    if seeds is not None:
        return f"{seeds} seeds"
    items = ((NormalDist().inv_cdf(1 - level) + power) * sample.item_error / distance) ** 2 * sample.items
    if items > sample.items:
        return f"more than {math.ceil(items):,} items, on more seeds"
    return f"more than {MAX_SEEDS} seeds"


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, probability))
