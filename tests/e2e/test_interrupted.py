import pytest

from tests.interrupted import interrupt


@pytest.mark.slow
def test_a_cycle_that_was_killed_and_resumed_leaves_what_an_unbroken_one_leaves() -> None:
    """Three moments; `python -m tests.interrupted` tries twenty."""
    assert interrupt(kills=3, seed=1) == []
