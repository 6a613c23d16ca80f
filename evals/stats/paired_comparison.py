"""Confidence intervals of one pass rate, and of the difference between two pass rates on the same items (paired).

The paired bound decides promotions, so it must hold its level with few items and few differences. There the usual
score interval (Tango's) errs more often than its nominal level (up to 8 % instead of 5 %, with 60 items), and Wald's
far more often. The bound used here melds the exact bounds of how many items differ and of the share of differences
that are gains (Fay and Lumbard 2021). It is exact if nothing was gained (Clopper-Pearson), else slightly conservative.

Where two models answered every prompt several times, what is compared is each prompt's difference of the share of
replies that pass, a number between −1 and 1. It has the same bound, with the differences counted by their typical size:
a hundred prompts that differ by a fifth are like five hundred items, of which a hundred differ. One prompt more is
counted as lost whole, which the exact bound does too, so that with one reply a prompt the two bounds are the same.

Ratios without a closed formula have bootstrap intervals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from recovery.errors import RecoverError

QUANTILES = (np.arange(500) + 0.5) / 500  # midpoints of equal shares of a distribution, instead of random draws
DRAWS = 2000  # of a bootstrap
POWER = 0.8  # of showing what is true, where items are planned


def wilson(passes: float, n: float) -> tuple[float, float]:
    """Return the 95 % score interval of a share. Unlike Wald's it stays in [0, 1] and does not collapse at 0 and 1."""
    z = NormalDist().inv_cdf(0.975)
    p = passes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))


def lower_bound(n: float, lost: float, gained: float, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of (share gained − share lost) on n paired items.

    The counts need not be whole: several replies to a prompt have weighted ones."""
    slope = _slope(lost, gained)
    low, high = -1.0, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if _share_below(middle, slope, n, lost + gained) < 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def p_at_most(n: float, lost: float, gained: float, difference: float) -> float:
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
    """The comparison of two checkpoints on the items that both answered, once or several times."""

    n: int
    difference: float  # mean over the items: share of replies that pass after − before
    low: float  # one-sided bounds of the difference
    high: float
    differ: float  # mean square of the items' differences: with one reply, the share that only one of the two passes
    confidence: float = 0.95  # of each bound
    samples: int = 0  # replies to each item besides the greedy one
    lost: list[str] = field(default_factory=list)  # with one reply: keys that passed before and fail after
    gained: list[str] = field(default_factory=list)

    @property
    def p_value(self) -> float:
        """Of McNemar's exact test."""
        return mcnemar(len(self.lost), len(self.gained))

    def n_needed(self, margin: float) -> int | None:
        """Return how many items would show a loss under `margin` if the measured difference is the true one."""
        return n_needed(margin, self.differ, self.difference, confidence=self.confidence)


def _slope(lost: float, gained: float) -> np.ndarray:
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


def _share_below(bound: float, slope: np.ndarray, n: float, differ: float) -> float:
    """P(rate × slope ≤ bound), with the less favourable bound of the rate of differences: high for losses."""
    safe = np.where(slope == 0, np.inf, slope)
    losing = 1 - _beta_below(bound / safe, differ + 1, n - differ) if bound < 0 else np.ones_like(slope)
    winning = _beta_below(bound / safe, differ, n - differ + 1) if bound >= 0 else np.zeros_like(slope)
    return float(np.where(slope < 0, losing, winning).mean())


Passes = Mapping[str, bool]  # of one reply to each prompt, by key


def prompt_differences(before: Sequence[Passes], after: Sequence[Passes]) -> list[float]:
    """Return each prompt's share of passing replies after minus before; both have the same number of replies."""
    keys = [key for key in before[0] if all(key in passes for passes in (*before, *after))]
    if not keys:
        raise RecoverError("The two measurements share no item. Measure both on the same data.")
    counts = [sum(b[key] for b in after) - sum(a[key] for a in before) for key in keys]
    return [count / len(before) for count in counts]


def replies_test(before: Sequence[Passes], after: Sequence[Passes], confidence: float = 0.95) -> PairedTest:
    """Compare by all replies to each prompt, of which the first is the greedy one. Each bound has the confidence."""
    differences = prompt_differences(before, after)
    n = len(differences)
    low = lower_bound(*_as_counts(differences), confidence)
    high = -lower_bound(*_as_counts([-d for d in differences]), confidence)
    differ = math.fsum(d * d for d in differences) / n
    return PairedTest(n, math.fsum(differences) / n, low, high, differ, confidence, len(before) - 1)


def paired_test(before: Passes, after: Passes, confidence: float = 0.95) -> PairedTest:
    """Compare what passed before and after, by item key. Each bound alone has the confidence."""
    lost = [key for key, passed in before.items() if passed and not after.get(key, True)]
    gained = [key for key, passed in before.items() if not passed and after.get(key, False)]
    return replace(replies_test([before], [after], confidence), lost=lost, gained=gained)


def weighted_counts(n: int, lost: float, gained: float, squares: float) -> tuple[float, float, float]:
    """Return the items, and of them the lost and the gained ones, that the lower bound goes by; no whole numbers.

    `lost` and `gained` are the sums of the differences below and above 0, `squares` is the sum of their squares."""
    size = (squares + 1) / (lost + gained + 1)  # of a difference: typical, with one prompt more that is lost whole
    return n / size, max(0.0, (lost + 1) / size - 1), gained / size


def _as_counts(differences: Sequence[float]) -> tuple[float, float, float]:
    lost, gained = -math.fsum(min(d, 0.0) for d in differences), math.fsum(max(d, 0.0) for d in differences)
    return weighted_counts(len(differences), lost, gained, math.fsum(d * d for d in differences))


def ratio_interval(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of Σ parts / Σ wholes, drawing (part, whole) pairs, such as prompts with their instructions."""
    if len(parts) == 0:
        raise RecoverError("There is nothing to measure: the data has no items. Give data with at least one.")
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
