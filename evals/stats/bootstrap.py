"""Intervals by drawing the sample again from itself: for what no formula covers, such as ratios and F1."""

from collections.abc import Sequence

import numpy as np

from recovery.errors import RecoverError

DRAWS = 2000


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """Of Σ parts / Σ wholes; what is drawn is a (part, whole), such as a prompt with its instructions."""
    if len(parts) == 0:
        raise RecoverError("there is nothing to measure: the data holds no items")
    p, w = np.asarray(parts, float), np.asarray(wholes, float)
    counts = _counts(len(p), draws, seed)
    low, high = np.quantile((counts @ p) / np.maximum(counts @ w, 1e-300), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def difference_interval(
    before: Sequence[float], after: Sequence[float], confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """Of the mean difference between two values of the same items: paired, so what they share cancels out."""
    change = np.asarray(after, float) - np.asarray(before, float)
    return ratio_interval(list(change), [1.0] * len(change), confidence, draws, seed)


def share_interval(
    clean: Sequence[float],
    damaged: Sequence[float],
    recovered: Sequence[float],
    confidence: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Of (recovered − damaged) / (clean − damaged), the same items drawn for all three."""
    c, d, r = (np.asarray(values, float) for values in (clean, damaged, recovered))
    counts = _counts(len(c), draws, seed)
    lost, back = counts @ (c - d), counts @ (r - d)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(lost > 0, back / lost, np.nan)
    if np.isnan(shares).mean() > (1 - confidence) / 2:  # damage that may be none has no share of it
        return float("nan"), float("nan")
    low, high = np.nanquantile(shares, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _counts(n: int, draws: int, seed: int) -> np.ndarray:
    """How often each item is drawn [draws, n]: all that resampling is."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(float)
