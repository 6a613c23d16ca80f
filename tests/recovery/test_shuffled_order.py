"""An endless shuffled order: the same function of seed and position, however it is read, and shuffled once an epoch."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.states import ShuffledOrder


def item(n: int, seed: int, position: int) -> tuple[int, int]:
    """By definition."""
    epoch, place = divmod(position, n)
    order = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return epoch, order[place]


READS = st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 25)), min_size=1, max_size=6)


@given(st.integers(1, 12), st.integers(0, 3), READS)
def test_a_draw_does_not_depend_on_those_before_it(n: int, seed: int, reads: list[tuple[int, int]]) -> None:
    order = ShuffledOrder(n, seed)
    for start, count in reads:
        assert order.take(start, count) == [item(n, seed, i) for i in range(start, start + count)]


def test_an_epoch_is_shuffled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled: list[str] = []

    class Counted(random.Random):
        def __init__(self, seed: str):
            shuffled.append(seed)
            super().__init__(seed)

    monkeypatch.setattr("recovery.states.Random", Counted)
    order = ShuffledOrder(10, 7)
    for start in range(0, 30, 3):  # some draws end in the next epoch
        order.take(start, 3)
    assert shuffled == ["7/0", "7/1", "7/2"]
