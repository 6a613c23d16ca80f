"""Decide whether a loss is below a margin, looking at the paired counts after each block of items.

Looking ten times at bounds of 95 % and stopping at the first that is clear errs far more often than one time in twenty.
So each look gets a smaller level, and all looks together have the error of one: by the share t of the items asked,
alpha · t² of the error may be spent (alpha spending; Lan and DeMets 1983, Kim and DeMets 1987). The levels come from
the joint normal distribution of the looks; at each of them the exact paired bound is taken at its level, so that a
single look is the test of `paired_comparison`.

`benchmarks/sequential_verdicts.py` simulates the errors.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np

from evals.stats.paired_comparison import PairedTest, bisect, paired_test
from recovery.errors import RecoverError

ALPHA = 0.05  # one-sided error, over all looks: of passing a loss of the margin, and of failing a smaller one
SPENDING_POWER = 2  # 1 stops earlier, but then misses more often at the end; 3 hardly stops early
MAX_LOOKS = 20  # blocks grow so that there are no more
GRID, LOWEST = 801, 6.0  # points of the numerical integration, and its end in standard deviations

Outcome = Literal["passed", "failed", "open"]  # open: neither is shown yet


@dataclass(frozen=True)
class SequentialTest:
    """The result at the first look that was clear, else at the last look."""

    outcome: Outcome
    pair: PairedTest  # on the items asked until then; its bounds hold for all looks together
    total: int  # items that could have been asked


def look_sizes(total: int, block: int = 0) -> list[int]:
    """How many items have been asked at each look. Without a block there is one look, at the end."""
    step = max(block, math.ceil(total / MAX_LOOKS)) if block else total
    return [*range(step, total, step), total]


@functools.cache
def look_levels(sizes: tuple[int, ...], alpha: float = ALPHA) -> tuple[float, ...]:
    """The one-sided level of each look, so that all of them together err with probability `alpha`.

    A Brownian motion is observed at the share of items asked; each look's limit is crossed for the first time with the
    probability that the spending function allows to it."""
    times = [size / sizes[-1] for size in sizes]
    points, mass, levels = np.zeros(1), np.ones(1), []  # the motion begins at 0
    for before, now in pairwise([0.0, *times]):
        step, spent = math.sqrt(now - before), alpha * (now**SPENDING_POWER - before**SPENDING_POWER)
        limit = _limit(points, mass, step, spent)
        levels.append(1 - NormalDist().cdf(limit / math.sqrt(now)))
        below = np.linspace(-LOWEST * math.sqrt(now), limit, GRID)
        density = np.exp(-(((below[:, None] - points) / step) ** 2) / 2) @ mass / (step * math.sqrt(2 * math.pi))
        width = below[1] - below[0]
        points, mass = below, density * np.where((below == below[0]) | (below == limit), width / 2, width)
    return tuple(levels)


def sequential_test(
    before: Mapping[str, bool],
    after: Mapping[str, bool],
    margin: float,
    block: int = 0,
    total: int | None = None,
) -> SequentialTest:
    """Compare what passed before and after, by item key, in the order of `after`, which may have been asked in part.

    `total`: how many items there are to ask, where they are asked in blocks."""
    keys = [key for key in after if key in before]
    if not keys:
        raise RecoverError("The two models answered none of the same prompts: measure both on the same prompts.")
    total = max(total or 0, len(keys)) if block else len(keys)
    sizes = look_sizes(total, block)
    complete = [(n, level) for n, level in zip(sizes, look_levels(tuple(sizes)), strict=True) if n <= len(keys)]
    if not complete:
        raise RecoverError(
            f"Both models answered {len(keys)} of the same prompts, but the verdict takes {sizes[0]} or more. "
            "Measure both on the same prompts."
        )
    for n, level in complete:
        pair = paired_test(before, {key: after[key] for key in keys[:n]}, 1 - level)
        outcome = clear_outcome(pair.low, pair.high, margin)
        if outcome != "open":
            break
    return SequentialTest(outcome, pair, total)


def clear_outcome(low: float, high: float, margin: float) -> Outcome:
    """What the bounds of the difference show: a loss below the margin, one above it, or neither."""
    return "passed" if low > -margin else "failed" if high <= -margin else "open"


def _limit(points: np.ndarray, mass: np.ndarray, step: float, spent: float) -> float:
    """The limit that the next observation of the motion exceeds with the probability `spent`."""
    from scipy.special import ndtr  # type: ignore[import-untyped]

    _, limit = bisect(lambda limit: float(mass @ ndtr((points - limit) / step)) > spent, -LOWEST, LOWEST, 1e-9)
    return limit
