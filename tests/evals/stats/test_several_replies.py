"""The comparison of two models by several replies to each prompt."""

import numpy as np
import pytest

from evals.stats.paired_comparison import paired_test, prompt_differences, replies_test
from recovery.errors import RecoverError


def passes(*values: bool) -> dict[str, bool]:
    return {str(i): value for i, value in enumerate(values)}


@pytest.mark.parametrize(("n", "lost", "gained"), [(60, 0, 0), (200, 12, 0), (200, 0, 9), (541, 30, 12), (20, 11, 9)])
def test_with_one_reply_the_bounds_are_those_of_the_paired_test(n: int, lost: int, gained: int) -> None:
    before = passes(*[i < lost for i in range(n)])
    after = passes(*[lost <= i < lost + gained for i in range(n)])
    for confidence in (0.95, 0.99):
        single, several = paired_test(before, after, confidence), replies_test([before], [after], confidence)
        assert (several.low, several.high) == pytest.approx((single.low, single.high), abs=1e-6)
        assert (several.n, several.samples, several.difference) == (n, 0, pytest.approx(single.difference))
        assert several.spread == pytest.approx(single.differ)
        assert several.n_needed(0.9) == single.n_needed(0.9)


def test_a_prompt_counts_by_the_mean_over_its_replies() -> None:
    before, after = [passes(True, True), passes(True, False)], [passes(False, True), passes(True, True)]
    assert prompt_differences(before, after) == [-0.5, 0.5]
    with pytest.raises(RecoverError, match="share no item"):
        prompt_differences([{"a": True}], [{"b": True}])


def test_replies_that_vary_by_themselves_narrow_the_bounds_and_equal_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    before, after = ([passes(*(rng.random(400) < 0.8)) for _ in range(5)] for _ in range(2))
    one, five = replies_test(before[:1], after[:1]), replies_test(before, after)
    assert five.high - five.low < 0.6 * (one.high - one.low)
    same = replies_test(before[:1] * 5, after[:1] * 5)
    assert (same.low, same.high) == pytest.approx((one.low, one.high), abs=1e-6)


def test_without_a_difference_the_bound_is_that_of_as_many_prompts() -> None:
    """Not of as many replies: a whole prompt may be lost that was not asked."""
    answers = [passes(*[True] * 100)] * 5
    assert replies_test(answers, answers).low == pytest.approx(-(1 - 0.05 ** (1 / 100)), abs=1e-5)


@pytest.mark.parametrize("whole", [0.0, 0.03])
def test_the_bound_errs_at_most_as_often_as_it_says_on_few_prompts(whole: float) -> None:
    """Also where a few prompts are lost in every reply, and the others vary by a little."""
    rng, errors, times = np.random.default_rng(1), 0, 300
    for _ in range(times):
        lost = rng.random(80) < whole
        varies = rng.random(80) < 0.2
        before = [passes(*np.where(varies, rng.random(80) < 0.5, True)) for _ in range(5)]
        after = [passes(*(np.where(varies, rng.random(80) < 0.5, True) & ~lost)) for _ in range(5)]
        true_loss = whole * (0.8 + 0.2 * 0.5)
        errors += replies_test(before, after).low > -true_loss
    assert errors <= times * 0.05 + 2 * (times * 0.05 * 0.95) ** 0.5
