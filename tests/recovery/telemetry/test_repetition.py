from hypothesis import given
from hypothesis import strategies as st

from recovery.telemetry.repetition import LENGTH, repetition


def test_a_loop_repeats_nearly_all_of_itself() -> None:
    loop = [5, 6, 7, 8] * 64
    assert repetition(loop) > 0.98
    assert repetition(list(range(200)) + loop) > 0.5


@given(st.lists(st.integers(0, 9), max_size=60))
def test_it_is_a_share_and_zero_without_repeated_pieces(tokens: list[int]) -> None:
    assert 0 <= repetition(tokens) < 1
    assert repetition(tokens[:LENGTH]) == 0
    assert repetition(list(range(len(tokens)))) == 0
