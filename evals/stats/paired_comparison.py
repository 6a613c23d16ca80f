"""Confidence intervals of one pass rate, and of the difference between two pass rates on the same items (paired).

The paired bound decides promotions, so it must hold its level with few items and few differences. There the usual
score interval (Tango's) errs more often than its nominal level (up to 8 % instead of 5 %, with 60 items), and Wald's
far more often. The bound used here melds the exact bounds of how many items differ and of the share of differences
that are gains (Fay and Lumbard 2021). It is exact if nothing was gained (Clopper-Pearson), else slightly conservative.

Ratios without a closed formula have bootstrap intervals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from recovery.errors import RecoverError

# Midpoints of shares of a distribution, and the size of each, instead of random draws. The shares are equal but in the
# tails, which decide where many readings together have one level.
_TAIL = np.logspace(-9, -2.7, 60)
_ENDS = np.concatenate([[0], _TAIL, np.linspace(0.002, 0.998, 500)[1:-1], 1 - _TAIL[::-1], [1]])
QUANTILES, WEIGHTS = (_ENDS[1:] + _ENDS[:-1]) / 2, np.diff(_ENDS)
DRAWS = 2000  # of a bootstrap
POWER = 0.8  # of showing what is true, where items or seeds are planned


def wilson(passes: float, n: float) -> tuple[float, float]:
    """Return the 95 % score interval of a share. Unlike Wald's it stays in [0, 1] and does not collapse at 0 and 1."""
    z = NormalDist().inv_cdf(0.975)
    p = passes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))


def lower_bound(n: int, lost: int, gained: int, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of (share gained − share lost) on n paired items."""
    slope = _slope(lost, gained)
    low, _ = bisect(lambda bound: _share_below(bound, slope, n, lost + gained) < 1 - confidence, -1.0, 1.0, 1e-7)
    return low


def bisect(is_below: Callable[[float], bool], low: float, high: float, width: float) -> tuple[float, float]:
    """An interval of at most this width, within low and high, that has the number below which the condition holds."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high


def p_at_most(n: int, lost: int, gained: int, difference: float) -> float:
    """Return the p-value of the hypothesis that the true difference is at most this: it is below 1 − confidence if and
    only if the lower bound is above it."""
    return _share_below(difference, _slope(lost, gained), n, lost + gained)


def mcnemar(lost: int, gained: int) -> float:
    """Return the exact two-sided p-value of the hypothesis that as many items are lost as gained."""
    n = lost + gained
    tail = sum(math.comb(n, k) for k in range(min(lost, gained) + 1))
    return min(1.0, 2 * tail / 2**n)


def n_needed(margin: float, differ: float, difference: float = 0.0, confidence: float = 0.95) -> int | None:
    """Return the number of items needed to show, with a power of 80 %, that the loss is at most `margin`.

    None if no number of items is enough. `differ` is the share of items on which the two disagree, `difference` the
    true gain (negative for a loss)."""
    if margin + difference <= 0:
        return None
    z = NormalDist().inv_cdf(confidence) + NormalDist().inv_cdf(POWER)
    for_variance = z * z * max(differ - difference**2, 0.0) / (margin + difference) ** 2 + 1 / (margin + difference)
    for_no_difference = math.log(1 - confidence) / math.log1p(-margin) if 0 < margin < 1 else 1
    return math.ceil(max(for_variance, for_no_difference))


@dataclass(frozen=True)
class PairedTest:
    """The comparison of two checkpoints on the items that both answered."""

    n: int
    difference: float  # of the shares that pass: after − before
    low: float  # one-sided bounds of the difference
    high: float
    differ: float  # share of the items that only one of the two passes
    confidence: float  # of each bound
    lost: list[str]  # keys that passed before and fail after
    gained: list[str]

    @property
    def p_value(self) -> float:
        """Of McNemar's exact test."""
        return mcnemar(len(self.lost), len(self.gained))

    def n_needed(self, margin: float) -> int | None:
        """Return how many items would show a loss under `margin` if the measured difference is the true one."""
        return n_needed(margin, self.differ, self.difference, confidence=self.confidence)


def _slope(lost: int, gained: int) -> np.ndarray:
    """The difference for each item that differs: conservative, from the lower bound of the share that are gains."""
    return 2 * _beta_quantiles(gained, lost + 1) - 1


def _beta_quantiles(a: float, b: float) -> np.ndarray:
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    return betaincinv(a, b, QUANTILES) if a else np.zeros(1)


def _beta_below(x: np.ndarray, a: float, b: float) -> np.ndarray:
    """P(Beta(a, b) ≤ x), where Beta(0, ·) and Beta(·, 0) are point masses at 0 and 1."""
    from scipy.special import betainc

    if a == 0:
        return (x >= 0).astype(float)
    if b == 0:
        return (x >= 1).astype(float)
    return betainc(a, b, np.clip(x, 0, 1))


def _share_below(bound: float, slope: np.ndarray, n: int, differ: int) -> float:
    """P(rate × slope ≤ bound), with the less favourable bound of the rate of differences: high for losses."""
    safe = np.where(slope == 0, np.inf, slope)
    losing = 1 - _beta_below(bound / safe, differ + 1, n - differ) if bound < 0 else np.ones_like(slope)
    winning = _beta_below(bound / safe, differ, n - differ + 1) if bound >= 0 else np.zeros_like(slope)
    weights = WEIGHTS if len(slope) > 1 else None  # a single point has all the mass
    return float(np.average(np.where(slope < 0, losing, winning), weights=weights))


Passes = Mapping[str, bool]  # by item key


def paired_test(before: Passes, after: Passes, confidence: float = 0.95) -> PairedTest:
    """Compare what passed before and after, by item key. Each bound alone has the confidence."""
    keys = [key for key in before if key in after]
    if not keys:
        raise RecoverError("The two measurements share no item. Measure both on the same data.")
    lost = [key for key in keys if before[key] and not after[key]]
    gained = [key for key in keys if after[key] and not before[key]]
    n, fewer, more = len(keys), len(lost), len(gained)
    low, high = lower_bound(n, fewer, more, confidence), -lower_bound(n, more, fewer, confidence)
    return PairedTest(n, (more - fewer) / n, low, high, (fewer + more) / n, confidence, lost, gained)


def ratio_interval(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of Σ parts / Σ wholes, drawing (part, whole) pairs, such as prompts with their instructions."""
    p, w = np.asarray(parts, float), np.asarray(wholes, float)
    counts = _draw_counts(len(p))
    low, high = np.quantile((counts @ p) / np.maximum(counts @ w, 1e-300), [0.025, 0.975])
    return float(low), float(high)


def share_interval(clean: Sequence[float], damaged: Sequence[float], recovered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of (recovered − damaged) / (clean − damaged), with the same items drawn for all three.

    (NaN, NaN) if the damage itself may be zero: then the share is undefined."""
    c, d, r = (np.asarray(values, float) for values in (clean, damaged, recovered))
    counts = _draw_counts(len(c))
    lost, regained = counts @ (c - d), counts @ (r - d)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(lost > 0, regained / lost, np.nan)
    if np.isnan(shares).mean() > 0.025:
        return float("nan"), float("nan")
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(low), float(high)


def _draw_counts(n: int) -> np.ndarray:
    """Sample how often each item is drawn, per bootstrap draw [draws, n]."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(float)
