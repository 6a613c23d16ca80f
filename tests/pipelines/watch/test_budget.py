"""Readings stay within their share of the training's time, whatever a step and a reading cost."""

from random import Random

import pytest

from pipelines.watch.callback import Budget, Kind


def simulate(budget: Budget, costs: dict[Kind, float], steps: int, step_cost: float = 1.0, seed: int = 0) -> list[int]:
    """The steps of the readings of rows."""
    rng, at, budget.costs = Random(seed), [], dict(costs)
    for step in range(1, steps + 1):
        budget.add_step(step_cost * rng.uniform(0.8, 1.2))
        for kind, cost in costs.items():
            if budget.is_due(kind, steps):
                budget.add_cost(cost, kind)
                at += [step] if kind == "rows" else []
    return at


@pytest.mark.parametrize("seed", range(20))
def test_readings_take_at_most_their_share(seed: int) -> None:
    rng = Random(seed)
    steps, step_cost = rng.randrange(50, 2000), rng.uniform(0.1, 3)
    whole = steps * step_cost
    budget = Budget(0.05)
    budget.add_cost(whole * rng.uniform(0, 0.02))
    cost = whole * rng.uniform(0.001, 0.01)
    readings = simulate(budget, {"rows": cost, "spot_checks": cost / 10, "instructions": 2 * cost}, steps, step_cost)
    assert len(readings) >= 1
    assert 0.02 < budget.taken_share <= 0.05 * 1.1  # steps cost up to a fifth more or less than expected


def test_readings_are_denser_at_the_beginning() -> None:
    at = simulate(Budget(0.1), {"rows": 0.4}, 100)
    assert len(at) >= 10
    assert at[0] == 2
    assert at[len(at) // 2] < 50
    assert at[-1] == 100


def test_a_slow_first_step_does_not_count_for_all() -> None:
    budget = Budget(0.06, costs={"rows": 1.0})
    budget.add_step(30.0)
    at = []
    for step in range(2, 1001):
        budget.add_step(0.1)
        if budget.is_due("rows", 1000):
            budget.add_cost(1.0, "rows")
            at.append(step)
    assert at[-1] == 1000, "an inflated estimate has them all in the first steps"
    assert budget.taken_share <= 0.06


def test_no_reading_begins_that_is_expected_to_cost_too_much() -> None:
    assert simulate(Budget(0.05), {"rows": 10.0}, 100) == []
    assert simulate(Budget(0.05, spent_seconds=50.0), {"rows": 0.1}, 100) == [], "reading the clean model has taken all"
    assert simulate(Budget(0.05), {"rows": 4.0}, 100) == [100]


def test_every_is_the_number_of_steps_between_two_readings() -> None:
    assert simulate(Budget(0.0, every=30), {"rows": 5.0, "spot_checks": 0.0}, 100) == [30, 60, 90]
