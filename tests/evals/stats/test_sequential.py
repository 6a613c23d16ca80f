import numpy as np
import pytest

from benchmarks.sequential_verdicts import Design, ModelPair, decide, simulate
from evals.stats.paired_comparison import paired_test
from evals.stats.sequential import ALPHA, MAX_LOOKS, clear_outcome, look_levels, look_sizes, sequential_test
from recovery.errors import RecoverError

MARGIN = 0.03


def answers(n: int, lost: int, gained: int, seed: int = 0) -> tuple[dict[str, bool], dict[str, bool]]:
    """Passes of two models on n items in random order, of which some are lost and some gained."""
    before = [True] * lost + [False] * gained + [True] * (n - lost - gained)
    after = [False] * lost + [True] * gained + [True] * (n - lost - gained)
    order = np.random.default_rng(seed).permutation(n)
    return {str(i): before[i] for i in order}, {str(i): after[i] for i in order}


def test_looks_come_after_each_block_and_at_the_end() -> None:
    assert look_sizes(541, 200) == [200, 400, 541]
    assert look_sizes(400, 200) == [200, 400]
    assert look_sizes(150, 200) == look_sizes(150) == [150]
    assert len(look_sizes(100_000, 200)) == MAX_LOOKS


@pytest.mark.parametrize("block", [0, 200])
def test_without_a_shared_prompt_one_sentence_says_so(block: int) -> None:
    with pytest.raises(RecoverError, match="answered none of the same prompts"):
        sequential_test({"a": True}, {"b": True}, MARGIN, block)


@pytest.mark.parametrize("sizes", [(200, 400, 541), tuple(look_sizes(2000, 200)), tuple(look_sizes(1000, 50))])
def test_all_looks_together_cross_their_limits_as_often_as_one_look(sizes: tuple[int, ...]) -> None:
    from scipy.stats import norm

    levels = look_levels(sizes)
    steps = np.diff(sizes, prepend=0) / sizes[-1]
    motion = (np.random.default_rng(0).normal(size=(100_000, len(sizes))) * np.sqrt(steps)).cumsum(1)
    crossed = motion / np.sqrt(np.array(sizes) / sizes[-1]) > norm.isf(levels)
    assert crossed.any(1).mean() == pytest.approx(ALPHA, abs=0.0025)
    assert list(levels) == sorted(levels)
    assert max(levels) < ALPHA


@pytest.mark.parametrize(("n", "lost", "gained"), [(200, 0, 0), (541, 30, 12), (541, 10, 12), (400, 90, 2), (60, 1, 0)])
def test_one_look_is_the_paired_test(n: int, lost: int, gained: int) -> None:
    before, after = answers(n, lost, gained)
    expected = paired_test(before, after)
    for block in (0, n, 1000):
        test = sequential_test(before, after, MARGIN, block)
        assert (test.pair.low, test.pair.high) == pytest.approx((expected.low, expected.high), abs=1e-6)
        assert test.outcome == clear_outcome(expected.low, expected.high, MARGIN)
        assert (test.pair.n, test.total) == (n, n)


def test_the_bounds_of_a_look_never_cross() -> None:
    """So nothing is both passed and failed."""
    rng = np.random.default_rng(0)
    for level in look_levels(tuple(look_sizes(2000, 200))):
        for n, lost, gained in rng.integers((50, 0, 0), (400, 25, 25), size=(15, 3)).tolist():
            pair = paired_test(*answers(n, lost, gained), 1 - level)
            assert pair.low <= pair.difference <= pair.high


def test_it_stops_at_the_first_clear_look_and_ignores_what_comes_later() -> None:
    before, after = answers(2000, 0, 0)
    test = sequential_test(before, after, MARGIN, 200)
    assert (test.outcome, test.total) == ("passed", 2000)
    assert 200 <= test.pair.n < 800
    asked = dict(list(after.items())[: test.pair.n])
    assert sequential_test(before, asked, MARGIN, 200, 2000) == test
    fewer = dict(list(after.items())[: test.pair.n - 200])
    assert sequential_test(before, fewer, MARGIN, 200, 2000).outcome == "open"
    ruined = {key: False for key in after}
    assert sequential_test(before, ruined, MARGIN, 200).outcome == "failed"
    assert sequential_test(before, ruined, MARGIN, 200).pair.n == 200


@pytest.mark.parametrize("differ", [0.02, 0.25])
def test_its_errors_are_at_most_one_in_twenty_and_it_asks_fewer_items(differ: float) -> None:
    pairs = 500
    design = Design(total=1000, block=200, margin=MARGIN)
    error = 0.05 + 2 * (0.05 * 0.95 / pairs) ** 0.5
    same = simulate(design, ModelPair(differ, 0.0), pairs, seed=1)
    assert same.failed <= error
    assert same.mean_items < 1000
    assert simulate(design, ModelPair(differ, MARGIN), pairs, seed=1).passed <= error
    worse = simulate(design, ModelPair(differ, 2 * MARGIN), pairs, seed=1)
    assert worse.passed <= error
    assert worse.mean_items < 1000


def test_the_simulation_decides_as_the_test_does() -> None:
    rng, outcomes = np.random.default_rng(3), set()
    for loss in (0.0, 0.01, 0.05, 0.12):
        differences = ModelPair(0.12, loss).differences(1000, rng)
        before, after = ({str(i): bool(sign * d > 0) for i, d in enumerate(differences)} for sign in (-1, 1))
        test = sequential_test(before, after, MARGIN, 200)
        assert decide(Design(total=1000, block=200, margin=MARGIN), differences) == (test.outcome, test.pair.n)
        outcomes.add(test.outcome)
    assert outcomes >= {"passed", "failed"}


def test_fewer_common_items_than_the_first_look_takes_are_refused() -> None:
    passes = {str(i): True for i in range(100)}
    with pytest.raises(RecoverError, match=r"answered 100 of the same prompts, but the verdict takes 200 or more\."):
        sequential_test(passes, passes, 0.03, block=200, total=2000)
