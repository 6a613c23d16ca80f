"""Distances between two samples of states, with a permutation test.

States are prefixes of rollouts, so states of one rollout, and rollouts of one prompt, are not independent. The unit is
therefore a prompt: pairs of the same prompt are left out of every mean, and the permutation test swaps the two models'
rollouts of whole prompts, which is exact if both models are the same.
"""

from dataclasses import dataclass

import numpy as np

from recovery.errors import RecoverError

Array = np.ndarray

PERMUTATIONS = 500
PROJECTIONS = 128
MEDIAN_ROWS = 1000  # rows per sample used for the median distance, as the median of all hardly differs


@dataclass(frozen=True)
class States:
    """Features [states, width] and the prompt of each state [states]."""

    features: Array
    prompts: Array


@dataclass(frozen=True)
class Discrepancy:
    """Squared maximum mean discrepancy with an RBF kernel. The estimate is unbiased, so it may be below 0."""

    value: float
    p_value: float


def mmd(before: States, after: States, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Discrepancy:
    """Compare states of the same prompts, with the median distance as bandwidth."""
    prompts, (own_x, own_y) = _common_prompts(before, after)
    x, y = standardize(before.features, after.features)
    bandwidth = median_distance(x, y)
    sums = _block_sums(np.concatenate([x, y]), np.concatenate([own_x, own_y + len(prompts)]), bandwidth)
    counts = np.bincount(np.concatenate([own_x, own_y + len(prompts)])).astype(float)
    rng = np.random.default_rng(seed)
    swaps = np.concatenate([np.zeros((1, len(prompts)), bool), rng.random((permutations, len(prompts))) < 0.5])
    values = _mmd_under(swaps, sums, counts)
    # Swapping all prompts equals swapping none, so rounding must not separate the two.
    at_least_as_far = (values[1:] >= values[0] - 1e-9).sum()
    return Discrepancy(float(values[0]), float((1 + at_least_as_far) / (1 + permutations)))


def centroid_distance(before: States, after: States) -> float:
    """Distance between the means, in standard deviations of each feature."""
    x, y = standardize(before.features, after.features)
    return float(np.linalg.norm(x.mean(0) - y.mean(0)))


def sliced_wasserstein(before: States, after: States, *, projections: int = PROJECTIONS, seed: int = 0) -> float:
    """Mean earth mover's distance between projections on random directions."""
    x, y = standardize(before.features, after.features)
    directions = np.random.default_rng(seed).standard_normal((x.shape[1], projections)).astype(x.dtype)
    directions /= np.linalg.norm(directions, axis=0)
    return float(wasserstein(x @ directions, y @ directions).mean())


def wasserstein(x: Array, y: Array) -> Array:
    """Earth mover's distance of each column [columns]; `x` and `y` may have different numbers of rows."""
    x, y = np.sort(x, axis=0), np.sort(y, axis=0)
    if len(x) == len(y):
        return np.abs(x - y).mean(0)
    # Both quantile functions are step functions, constant between neighbouring steps of either.
    steps = np.unique(np.concatenate([np.arange(1, len(x) + 1) * len(y), np.arange(1, len(y) + 1) * len(x)]))
    shares = np.diff(steps, prepend=0) / (len(x) * len(y))
    before = steps - 1
    return shares @ np.abs(x[before // len(y)] - y[before // len(x)])


def standardize(x: Array, y: Array) -> tuple[Array, Array]:
    """Scale every feature by its standard deviation over both samples; a constant feature becomes 0."""
    both = np.concatenate([x, y]).astype(np.float64)
    mean, spread = both.mean(0), both.std(0)
    scale = np.where(spread > 1e-9 * (np.abs(mean) + 1), 1 / np.maximum(spread, 1e-300), 0.0)
    both = ((both - mean) * scale).astype(np.float32)
    return both[: len(x)], both[len(x) :]


def median_distance(x: Array, y: Array) -> float:
    from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

    rows = np.concatenate([_evenly_spaced(x, MEDIAN_ROWS), _evenly_spaced(y, MEDIAN_ROWS)])
    return float(np.median(pdist(rows))) or 1.0


def _evenly_spaced(rows: Array, count: int) -> Array:
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def _common_prompts(before: States, after: States) -> tuple[Array, tuple[Array, Array]]:
    """Return the prompts, and the index of each state's prompt for both samples."""
    prompts = np.union1d(before.prompts, after.prompts)
    if not all(np.isin(prompts, sample.prompts).all() for sample in (before, after)):
        raise RecoverError("The two samples of states have different prompts. Let both models answer the same ones.")
    if len(prompts) < 2:
        raise RecoverError("Drift needs the states of at least two prompts. Give more of them.")
    return prompts, (np.searchsorted(prompts, before.prompts), np.searchsorted(prompts, after.prompts))


def _block_sums(rows: Array, groups: Array, bandwidth: float) -> Array:
    """Sum kernel values over all pairs of two groups [groups, groups], 512 rows of the kernel matrix at a time."""
    order = np.argsort(groups, kind="stable")
    rows, groups = rows[order], groups[order]
    starts = np.searchsorted(groups, np.arange(groups[-1] + 1))
    squares = np.einsum("ij,ij->i", rows, rows)
    by_row = np.empty((len(rows), len(starts)))
    for start in range(0, len(rows), 512):
        part = slice(start, start + 512)
        kernel = rows[part] @ rows.T
        kernel *= -2
        kernel += squares[part, None]
        kernel += squares
        np.maximum(kernel, 0, out=kernel)
        kernel *= -0.5 / bandwidth**2
        np.exp(kernel, out=kernel)
        by_row[part] = np.add.reduceat(kernel, starts, axis=1)
    return np.add.reduceat(by_row, starts, axis=0)


def _mmd_under(swaps: Array, sums: Array, counts: Array) -> Array:
    """Return the discrepancy for each row of `swaps` [permutations, prompts], which says what prompts change sides."""
    prompts = swaps.shape[1]
    first = np.concatenate([~swaps, swaps], axis=1).astype(float)  # which groups are on the first side
    second = 1 - first
    # Pairs within one prompt are excluded: what its groups have in common is not drift.
    allowed = ~(np.eye(2 * prompts, dtype=bool) | np.roll(np.eye(2 * prompts, dtype=bool), prompts, axis=1))
    sums, pairs = sums * allowed, np.outer(counts, counts) * allowed

    def mean(a: Array, b: Array) -> Array:
        return np.asarray(((a @ sums) * b).sum(1) / ((a @ pairs) * b).sum(1))

    return mean(first, first) + mean(second, second) - 2 * mean(first, second)
