"""Readings stay within their share of the training's time, whatever a step and a reading cost."""

from random import Random

import pytest

from pipelines.watch.budget import Budget


def simulate(budget: Budget, steps: int, step_cost: float, reading_cost: float, first_cost: float, seed: int) -> int:
    rng, readings = Random(seed), 0
    budget.spent(first_cost, is_reading=False)
    for _ in range(steps):
        budget.stepped(step_cost * rng.uniform(0.8, 1.2))
        if budget.is_due(steps):
            budget.spent(reading_cost)
            readings += 1
    return readings


@pytest.mark.parametrize("seed", range(20))
def test_readings_take_at_most_their_share(seed: int) -> None:
    rng = Random(seed)
    steps, step_cost = rng.randrange(50, 2000), rng.uniform(0.1, 3)
    whole = steps * step_cost
    budget = Budget(0.05)
    readings = simulate(budget, steps, step_cost, whole * rng.uniform(0.001, 0.01), whole * rng.uniform(0, 0.02), seed)
    assert readings >= 2
    assert budget.taken_share <= 0.05 * 1.1  # steps cost up to a fifth more or less than expected
    assert budget.last_reading > steps / 2, "they are spread over the training"


def test_a_reading_that_costs_too_much_is_taken_once_at_most() -> None:
    budget = Budget(0.05)
    assert simulate(budget, 100, 1.0, 4.0, 0.0, 0) == 1
    dear = Budget(0.05)
    assert simulate(dear, 100, 1.0, 1.0, 50.0, 0) == 0, "reading the clean model has taken all"


def test_no_reading_begins_that_is_expected_to_cost_too_much() -> None:
    assert simulate(Budget(0.05, expected=10.0), 100, 1.0, 10.0, 0.0, 0) == 0
    assert simulate(Budget(0.05, expected=1.0), 100, 1.0, 1.0, 0.0, 0) >= 3


def test_two_budgets_of_one_share_stay_within_it_and_a_cheap_reading_has_several_parts() -> None:
    rows, looks = Budget(0.05), Budget(0.0)
    rows.spent(2.0, is_reading=False)
    rows.give(looks, 0.6, training_seconds=100.0)
    assert (rows.share, looks.share) == pytest.approx((0.05 - 0.6 * 0.03, 0.6 * 0.03))
    looks.expected, parts = 0.004, []
    for _ in range(100):
        rows.stepped(1.0)
        looks.stepped(1.0)
        if looks.is_due(100):
            parts.append(looks.fit_in_a_step(100))
            looks.spent(0.004 * parts[-1], parts=parts[-1])
    assert min(parts) >= 4, "0.018 of a step pays for four"
    assert looks.taken_share <= 0.018


def test_every_is_a_minimum_of_steps_between_two_readings() -> None:
    budget = Budget(0.5, every=30)
    assert simulate(budget, 100, 1.0, 0.01, 0.0, 0) == 3
