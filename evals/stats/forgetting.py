"""What was lost and what came back, told from measurements alone: no model is needed any more.

Forgetting is F = before − after on a task, retention the ratio after / before; both are averaged over tasks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evals.results import Item, Metric, Result
from evals.stats.bootstrap import difference_interval, share_interval
from evals.stats.paired_tests import Paired, paired
from recovery.errors import RecoverError


@dataclass(frozen=True)
class Forgotten:
    """One task before and after, on the items that both have answered."""

    task: str
    suite: str
    before: float
    after: float
    flips: Paired  # which items were lost and gained, and McNemar's test of the two

    @property
    def forgetting(self) -> float:
        return self.before - self.after

    @property
    def retention(self) -> float:
        """Above 1 where more was gained than lost; not a number where there was nothing to retain."""
        return self.after / self.before if self.before else math.nan


@dataclass(frozen=True)
class Summary:
    tasks: list[Forgotten]

    @property
    def forgetting(self) -> float:
        return _mean([task.forgetting for task in self.tasks])

    @property
    def retention(self) -> float:
        """Over the tasks that had something to retain."""
        return _mean([task.retention for task in self.tasks if task.before])


def forgotten(before: Iterable[Result], after: Iterable[Result]) -> Summary:
    """Every task that both hold, in the order of the first."""
    later = {(result.suite, result.task, result.data): result for result in after}
    shared = [(result, later.get((result.suite, result.task, result.data))) for result in before]
    tasks = [_forgotten(one, other) for one, other in shared if other is not None]
    if not tasks:
        raise RecoverError("the two checkpoints share no task; measure both by the same suites")
    return Summary(tasks)


def recovered_share(clean: Result, damaged: Result, recovered: Result) -> Metric:
    """Of what the damage took, how much is back: 1 all of it, 0 none, below 0 where more was lost.

    Not a number where nothing was lost; without an interval where what was lost may be nothing."""
    c, d, r = (result.passed_by_key() for result in (clean, damaged, recovered))
    keys = [key for key in c if key in d and key in r]
    if not keys:
        raise RecoverError("the three measurements share no item; measure all on the same data")
    here, gone, again = ([float(of[key]) for key in keys] for of in (c, d, r))
    lost, back = sum(here) - sum(gone), sum(again) - sum(gone)
    interval = share_interval(here, gone, again) if lost > 0 else (math.nan, math.nan)
    return Metric(back / lost if lost > 0 else math.nan, len(keys), math.nan, interval)


def gain(before: Result, after: Result, value: str) -> Metric:
    """Mean difference of a verdict that is a number (`answer_logprob`, `f1`) over the items that both hold."""
    earlier = {item.key: item for item in before.items}
    pairs = [(_number(earlier[item.key], value), _number(item, value)) for item in after.items if item.key in earlier]
    if not pairs:
        raise RecoverError("the two measurements share no item; measure both on the same data")
    told = Metric.of_values([b - a for a, b in pairs])
    return Metric(told.value, told.n, told.stderr, difference_interval([a for a, _ in pairs], [b for _, b in pairs]))


def _number(item: Item, name: str) -> float:
    number = item.verdicts.get(name)
    if not isinstance(number, int | float):
        raise RecoverError(f"the items of this measurement carry no number {name!r}")
    return float(number)


def _forgotten(before: Result, after: Result) -> Forgotten:
    flips = paired(before.passed_by_key(), after.passed_by_key())
    return Forgotten(before.task, before.suite, _share(before, after), _share(after, before), flips)


def _share(of: Result, shared_with: Result) -> float:
    """Its headline; of items that pass or fail, where only some of them are in both, that of these."""
    keys = shared_with.passed_by_key()
    mine = of.passed_by_key()
    if mine.keys() <= keys.keys() or not of.counts_passes:
        return of.headline.value
    passed = [passed for key, passed in mine.items() if key in keys]
    return sum(passed) / len(passed)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
