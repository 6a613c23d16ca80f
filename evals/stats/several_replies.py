"""Compare two models that answered every prompt several times: the mean share of replies that pass, paired by prompt.

The prompts are the independent units: what is compared is each prompt's difference, a number between −1 and 1. The
bound is that of `paired_comparison`, with the differences counted by their typical size: a hundred prompts that differ
by a fifth are like five hundred items, of which a hundred differ. One prompt more is counted as lost whole, which the
exact bound does too, so that with one reply a prompt the two bounds are the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evals.stats.paired_comparison import lower_bound, n_needed
from recovery.errors import RecoverError

Passes = Mapping[str, bool]  # of one reply to each prompt, by key


@dataclass(frozen=True)
class RepliesTest:
    """The comparison of two models by several replies to each prompt."""

    n: int  # prompts
    samples: int  # replies to each prompt besides the greedy one
    difference: float  # mean over the prompts: share of replies that pass after − before
    low: float  # one-sided bounds of the difference
    high: float
    spread: float  # mean square of the prompts' differences
    confidence: float = 0.95  # of each bound

    def n_needed(self, margin: float) -> int | None:
        """Return how many prompts would show a loss under `margin`, with as many replies to each."""
        return n_needed(margin, self.spread, self.difference, confidence=self.confidence)


def prompt_differences(before: Sequence[Passes], after: Sequence[Passes]) -> list[float]:
    """Return each prompt's share of passing replies after minus before; both have the same number of replies."""
    keys = [key for key in before[0] if all(key in passes for passes in (*before, *after))]
    if not keys:
        raise RecoverError("The two measurements share no item. Measure both on the same data.")
    counts = [sum(b[key] for b in after) - sum(a[key] for a in before) for key in keys]
    return [count / len(before) for count in counts]


def replies_test(before: Sequence[Passes], after: Sequence[Passes], confidence: float = 0.95) -> RepliesTest:
    """Compare by all replies to each prompt, of which the first is the greedy one. Each bound has the confidence."""
    differences = prompt_differences(before, after)
    n = len(differences)
    low = lower_bound(*_as_counts(differences), confidence)
    high = -lower_bound(*_as_counts([-d for d in differences]), confidence)
    spread = math.fsum(d * d for d in differences) / n
    return RepliesTest(n, len(before) - 1, math.fsum(differences) / n, low, high, spread, confidence)


def weighted_counts(n: int, lost: float, gained: float, squares: float) -> tuple[float, float, float]:
    """Return the items, and of them the lost and the gained ones, that the lower bound goes by; no whole numbers.

    `lost` and `gained` are the sums of the differences below and above 0, `squares` is the sum of their squares."""
    size = (squares + 1) / (lost + gained + 1)  # of a difference: typical, with one prompt more that is lost whole
    return n / size, max(0.0, (lost + 1) / size - 1), gained / size


def _as_counts(differences: Sequence[float]) -> tuple[float, float, float]:
    lost, gained = -math.fsum(min(d, 0.0) for d in differences), math.fsum(max(d, 0.0) for d in differences)
    return weighted_counts(len(differences), lost, gained, math.fsum(d * d for d in differences))
