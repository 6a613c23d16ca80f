"""Forgetting and recovery between measured checkpoints, computed from their results.

Forgetting is before − after on a task, retention the ratio after / before.
"""

import math
from dataclasses import dataclass

from evals.results import Metric, Result
from evals.stats.paired_comparison import PairedTest, paired_test, share_interval
from recovery.errors import RecoverError


@dataclass(frozen=True)
class TaskForgetting:
    """One task's scores before and after, on the items that both results contain."""

    before: float
    after: float
    flips: PairedTest  # the items lost and gained, with McNemar's test

    @property
    def forgetting(self) -> float:
        return self.before - self.after

    @property
    def retention(self) -> float:
        """Above 1 if more was gained than lost; NaN if the score before was 0."""
        return self.after / self.before if self.before else math.nan


def task_forgetting(before: Result, after: Result) -> TaskForgetting:
    flips = paired_test(before.passed_by_key(), after.passed_by_key())
    return TaskForgetting(shared_score(before, after), shared_score(after, before), flips)


def recovered_share(clean: Result, damaged: Result, recovered: Result) -> Metric:
    """Return the share of the damage that was recovered: 1 all of it, 0 none, below 0 if more was lost.

    NaN if nothing was lost. The interval is NaN if the loss is not distinguishable from zero."""
    c, d, r = (result.passed_by_key() for result in (clean, damaged, recovered))
    keys = [key for key in c if key in d and key in r]
    if not keys:
        raise RecoverError("The three measurements share no item. Measure all of them on the same data.")
    before, middle, after = ([float(passed[key]) for key in keys] for passed in (c, d, r))
    lost, regained = sum(before) - sum(middle), sum(after) - sum(middle)
    interval = share_interval(before, middle, after) if lost > 0 else (math.nan, math.nan)
    return Metric(regained / lost if lost > 0 else math.nan, len(keys), math.nan, interval)


def shared_score(result: Result, other: Result) -> float:
    """The headline value; where only some items are shared, the mean of these items' passes or grades. NaN where the
    headline is no mean of its items."""
    grades, others = result.grades_by_key(), other.passed_by_key()
    if result.passed_by_key().keys() <= others.keys():
        return result.headline.value
    shared = [grade for key, grade in grades.items() if key in others]
    return math.fsum(shared) / len(shared) if shared else math.nan
