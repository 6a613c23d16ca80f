"""Which checkpoints of probes are kept: those that have something that none of the others has."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.training.probes import Frontier, FrontierPoint


def point(step: int, *scores: float, error: float = 0.0) -> FrontierPoint:
    values = dict(zip(("behaviour", "knowledge", "retention"), scores, strict=False))
    return FrontierPoint(step, values, dict.fromkeys(values, error))


def after(frontier: Frontier, *points: FrontierPoint) -> list[int]:
    """The steps of the kept points."""
    for one in points:
        frontier.points = frontier.points_with(one)
    return [one.step for one in frontier.points]


def test_a_point_that_is_better_in_nothing_is_not_kept() -> None:
    assert after(Frontier(3), point(10, 0.8, 0.9, 0.9), point(20, 0.9, 0.8, 0.9), point(30, 0.8, 0.8, 0.9)) == [10, 20]
    assert after(Frontier(3), point(10, 0.8, 0.9), point(20, 0.9, 0.9)) == [20]


def test_a_difference_within_the_standard_error_counts_as_none() -> None:
    early, late = point(10, 0.90, 0.95, error=0.01), point(20, 0.91, 0.94, error=0.01)
    assert after(Frontier(3), early, late) == [10]
    assert after(Frontier(3), early, point(20, 0.92, 0.945, error=0.01)) == [20]
    assert after(Frontier(3), early, point(20, 0.93, 0.90, error=0.01)) == [10, 20]


def test_where_there_are_too_many_the_best_of_each_measure_stays() -> None:
    points = [point(10, 0.5, 0.99, 0.8), point(20, 0.7, 0.9, 0.9), point(30, 0.8, 0.8, 0.95), point(40, 0.95, 0.5, 0.7)]
    assert after(Frontier(3), *points) == [10, 30, 40]
    assert after(Frontier(4), *points) == [10, 20, 30, 40]
    assert after(Frontier(1), *points) == [40]
    assert after(Frontier(0), *points) == []


def test_the_end_of_the_run_replaces_the_points_that_it_covers() -> None:
    frontier = Frontier(3, [point(10, 0.8, 0.9), point(20, 0.85, 0.8)])
    assert [one.step for one in frontier.points_beside(point(30, 0.9, 0.85))] == [10]


def test_what_is_stored_with_a_run_restores_it() -> None:
    frontier = Frontier(3, [point(10, 0.8, 0.9, error=0.01)])
    assert Frontier.from_json(3, frontier.as_json()) == frontier


scores = st.floats(0, 1, width=32)


@given(st.lists(st.tuples(scores, scores, scores), max_size=12), st.integers(0, 4), st.sampled_from([0.0, 0.02]))
def test_never_more_than_the_setting_and_none_covers_another(
    values: list[tuple[float, ...]], keep: int, error: float
) -> None:
    frontier = Frontier(keep)
    for step, value in enumerate(values):
        frontier.points = frontier.points_with(point(step, *value, error=error))
        assert len(frontier.points) <= keep
        assert all(a.step < b.step for a, b in pairwise(frontier.points))
        assert not any(a.covers(b) for a in frontier.points for b in frontier.points if a is not b)
    if values and keep and not error:
        assert max(value[0] for value in values) == max(one.scores["behaviour"] for one in frontier.points)


@pytest.mark.parametrize("measure", ["behaviour", "knowledge"])
def test_a_measure_that_only_one_of_two_has_does_not_fail(measure: str) -> None:
    one, both = FrontierPoint(1, {measure: 0.9}), point(2, 0.9, 0.9)
    assert both.covers(one)
    assert not one.covers(both)
