import pytest

from tests.interrupted import interrupt


@pytest.mark.slow
def test_a_cycle_that_was_killed_and_resumed_leaves_what_an_unbroken_one_leaves() -> None:
    """One moment, in the distillation of a first cycle; `python -m tests.interrupted` tries twenty in a second one."""
    assert interrupt(kills=1, seed=24, earlier_cycle=False) == []
