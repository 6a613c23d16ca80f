import math

import numpy as np
import pytest
from scipy import stats

from evals.forgetting import recovered_share, task_forgetting
from evals.results import Item, Metric, Result
from evals.stats.paired_comparison import mcnemar, ratio_interval, share_interval
from tests.evals import fakes


def result(passes: str) -> Result:
    """`passes` has one letter per item: + or -, or a space for an item that the result does not have."""
    whole = fakes.result([letter == "+" for letter in passes], "arithmetic", "retention")
    return whole.on([str(i) for i, letter in enumerate(passes) if letter != " "])


def test_forgetting_and_retention_of_a_task() -> None:
    task = task_forgetting(result("++++-"), result("+-+-+"))
    assert (task.forgetting, task.retention) == (pytest.approx(0.2), pytest.approx(0.75))
    assert (task.flips.lost, task.flips.gained) == (["1", "3"], ["4"])
    assert task.flips.p_value == mcnemar(2, 1)


def test_only_items_that_both_answered_are_compared() -> None:
    task = task_forgetting(result("+++ -"), result("+ -+-"))
    assert (task.before, task.after) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert task.flips.n == 3


def test_the_recovered_share() -> None:
    clean, damaged = result("+" * 40), result("+" * 10 + "-" * 30)
    share = recovered_share(clean, damaged, result("+" * 31 + "-" * 9))
    assert share.value == pytest.approx(0.7)
    assert share.ci95[0] < 0.7 < share.ci95[1]
    assert recovered_share(clean, damaged, clean).value == 1.0
    assert recovered_share(clean, damaged, damaged).value == 0.0
    assert recovered_share(clean, damaged, result("-" * 40)).value < 0


def test_without_certain_damage_the_recovered_share_has_no_interval() -> None:
    tiny = recovered_share(result("+" * 20), result("+" * 19 + "-"), result("+" * 20))
    assert tiny.value == 1.0
    assert math.isnan(tiny.ci95[0])  # one item in twenty may be no damage at all


def test_the_bootstrap_agrees_with_scipys() -> None:
    random = np.random.default_rng(1)
    wholes = random.integers(1, 4, size=40)
    parts = random.binomial(wholes, 0.6)
    expected = stats.bootstrap(
        (parts, wholes), lambda p, w: p.sum() / w.sum(), paired=True, vectorized=False, method="percentile", rng=random
    ).confidence_interval
    assert ratio_interval(parts, wholes) == pytest.approx((expected.low, expected.high), abs=0.03)


def test_the_interval_of_instructions_agrees_with_the_bootstrap_over_prompts() -> None:
    random = np.random.default_rng(2)
    easy = random.beta(2, 1, size=300)
    groups = [list(random.random(random.integers(1, 4)) < p) for p in easy]
    formula = Metric.from_groups(groups).ci95
    drawn = ratio_interval([sum(g) for g in groups], [len(g) for g in groups])
    assert formula == pytest.approx(drawn, abs=0.01)


def test_the_same_items_are_drawn_for_all_three() -> None:
    clean, damaged = [1.0] * 50 + [0.0] * 50, [0.0] * 100
    low, high = share_interval(clean, damaged, [v / 2 for v in clean])
    assert low == pytest.approx(0.5)
    assert high == pytest.approx(0.5)


def test_a_ratio_is_the_ratio_of_sums() -> None:
    metric = Metric.from_ratio([10.0, 1.0], [20.0, 1.0])
    assert metric.value == pytest.approx(11 / 21)
    assert metric.n == 2
    assert math.isnan(Metric.from_ratio([1.0], [2.0]).stderr)


def test_grades_are_compared_on_the_items_that_both_have() -> None:
    def graded(grades: dict[str, float], metric: str = "f1") -> Result:
        items = [Item(key, "", "", False, {metric: grade}) for key, grade in grades.items()]
        return Result("f1", "behaviour", "d", {"f1": Metric.from_values([*grades.values()])}, items, {}, 0.0)

    easy = dict.fromkeys("xyz", 0.9)
    task = task_forgetting(graded({"a": 0.1, "b": 0.3, **easy}), graded({"a": 0.1, "b": 0.3, "c": 1.0}))
    assert (task.before, task.after) == (pytest.approx(0.2), pytest.approx(0.2))
    unknown = task_forgetting(graded({"a": 0.1, **easy}, "bleu"), graded({"a": 0.1, "c": 0.5}, "bleu"))
    assert math.isnan(unknown.before)
