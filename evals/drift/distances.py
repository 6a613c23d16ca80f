"""How far apart two samples of states are, and whether chance explains it.

States are prefixes of rollouts: those of one rollout depend on each other, and rollouts of one prompt have the prompt
in common. So a prompt is the unit here. Pairs of the same prompt are left out of every mean, and the permutation test
swaps the two models' rollouts of whole prompts, which is exact where both models are the same.
"""

from dataclasses import dataclass

import numpy as np

from recovery.errors import RecoverError

Array = np.ndarray

PERMUTATIONS = 500
PROJECTIONS = 128
MEDIAN_ROWS = 1000  # of each side; the median of their distances hardly differs from that of all


@dataclass(frozen=True)
class States:
    """Features [states, width], and the prompt that each state belongs to [states]."""

    features: Array
    prompts: Array


@dataclass(frozen=True)
class Discrepancy:
    """Squared maximum mean discrepancy under an RBF kernel. Unbiased: around 0, also below, where nothing changed."""

    value: float
    p_value: float
    bandwidth: float


def mmd(before: States, after: States, *, permutations: int = PERMUTATIONS, seed: int = 0) -> Discrepancy:
    """Between states of the same prompts, with the median distance as bandwidth."""
    names, (own_x, own_y) = _common_prompts(before, after)
    x, y = standardised(before.features, after.features)
    bandwidth = median_distance(x, y)
    sums = _block_sums(np.concatenate([x, y]), np.concatenate([own_x, own_y + len(names)]), bandwidth)
    counts = np.bincount(np.concatenate([own_x, own_y + len(names)])).astype(float)
    random = np.random.default_rng(seed)
    swaps = np.concatenate([np.zeros((1, len(names)), bool), random.random((permutations, len(names))) < 0.5])
    values = _mmd_under(swaps, sums, counts)
    # A swap of all prompts is none, so rounding must not tell the two apart.
    as_far = (values[1:] >= values[0] - 1e-9).sum()
    return Discrepancy(float(values[0]), float((1 + as_far) / (1 + permutations)), bandwidth)


def centroid_distance(before: States, after: States) -> float:
    """Between the means, in standard deviations of each feature."""
    x, y = standardised(before.features, after.features)
    return float(np.linalg.norm(x.mean(0) - y.mean(0)))


def sliced_wasserstein(before: States, after: States, *, projections: int = PROJECTIONS, seed: int = 0) -> float:
    """Mean over random directions of the earth mover's distance between the projections."""
    x, y = standardised(before.features, after.features)
    directions = np.random.default_rng(seed).standard_normal((x.shape[1], projections)).astype(x.dtype)
    directions /= np.linalg.norm(directions, axis=0)
    return float(wasserstein(x @ directions, y @ directions).mean())


def wasserstein(x: Array, y: Array) -> Array:
    """Earth mover's distance [columns] between the rows of each column, of as many rows or not."""
    x, y = np.sort(x, axis=0), np.sort(y, axis=0)
    if len(x) == len(y):
        return np.abs(x - y).mean(0)
    # Both quantile functions are steps: between two neighbouring steps of either, neither moves.
    steps = np.unique(np.concatenate([np.arange(1, len(x) + 1) * len(y), np.arange(1, len(y) + 1) * len(x)]))
    shares = np.diff(steps, prepend=0) / (len(x) * len(y))
    before = steps - 1
    return shares @ np.abs(x[before // len(y)] - y[before // len(x)])


def standardised(x: Array, y: Array) -> tuple[Array, Array]:
    """Every feature in units of its spread over both samples; one that never varies is dropped to nothing."""
    both = np.concatenate([x, y]).astype(np.float64)
    mean, spread = both.mean(0), both.std(0)
    scale = np.where(spread > 1e-9 * (np.abs(mean) + 1), 1 / np.maximum(spread, 1e-300), 0.0)
    both = ((both - mean) * scale).astype(np.float32)
    return both[: len(x)], both[len(x) :]


def median_distance(x: Array, y: Array) -> float:
    from scipy.spatial.distance import pdist  # type: ignore[import-untyped]

    some = np.concatenate([_evenly(x, MEDIAN_ROWS), _evenly(y, MEDIAN_ROWS)])
    return float(np.median(pdist(some))) or 1.0


def _evenly(rows: Array, count: int) -> Array:
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def _common_prompts(before: States, after: States) -> tuple[Array, tuple[Array, Array]]:
    names = np.union1d(before.prompts, after.prompts)
    inside = [np.isin(names, side.prompts).all() for side in (before, after)]
    if not all(inside):
        raise RecoverError("the two samples of states have other prompts; let both models answer the same ones")
    if len(names) < 2:
        raise RecoverError("drift needs the states of at least two prompts")
    return names, (np.searchsorted(names, before.prompts), np.searchsorted(names, after.prompts))


def _block_sums(rows: Array, groups: Array, bandwidth: float) -> Array:
    """Kernel values summed over all pairs of two groups [groups, groups], a stripe of the kernel matrix at a time."""
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
    """The discrepancy for each row of `swaps` [permutations, prompts]: which prompts change sides."""
    prompts = swaps.shape[1]
    here = np.concatenate([~swaps, swaps], axis=1).astype(float)  # which groups are on the first side
    there = 1 - here
    # What two groups of one prompt have in common is not drift: such pairs count nowhere.
    apart = ~(np.eye(2 * prompts, dtype=bool) | np.roll(np.eye(2 * prompts, dtype=bool), prompts, axis=1))
    sums, pairs = sums * apart, np.outer(counts, counts) * apart

    def mean(a: Array, b: Array) -> Array:
        return np.asarray(((a @ sums) * b).sum(1) / ((a @ pairs) * b).sum(1))

    return mean(here, here) + mean(there, there) - 2 * mean(here, there)
