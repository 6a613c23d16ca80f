"""Bootstrap confidence intervals, for statistics without a closed formula, such as ratios and F1."""

from collections.abc import Sequence

import numpy as np

from recovery.errors import RecoverError

DRAWS = 2000


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of Σ parts / Σ wholes, drawing (part, whole) pairs, such as prompts with their instructions."""
    if len(parts) == 0:
        raise RecoverError("There is nothing to measure: the data has no items. Give data with at least one.")
    p, w = np.asarray(parts, float), np.asarray(wholes, float)
    counts = _counts(len(p), draws, seed)
    low, high = np.quantile((counts @ p) / np.maximum(counts @ w, 1e-300), [0.025, 0.975])
    return float(low), float(high)


def share_interval(clean: Sequence[float], damaged: Sequence[float], recovered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of (recovered − damaged) / (clean − damaged), with the same items drawn for all three.

    (NaN, NaN) if the damage itself may be zero: then the share is undefined."""
    c, d, r = (np.asarray(values, float) for values in (clean, damaged, recovered))
    counts = _counts(len(c), DRAWS, seed=0)
    lost, regained = counts @ (c - d), counts @ (r - d)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(lost > 0, regained / lost, np.nan)
    if np.isnan(shares).mean() > 0.025:
        return float("nan"), float("nan")
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(low), float(high)


def _counts(n: int, draws: int, seed: int) -> np.ndarray:
    """Sample how often each item is drawn, per bootstrap draw [draws, n]."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(float)
