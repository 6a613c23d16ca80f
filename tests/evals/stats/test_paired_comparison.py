import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from evals.stats.paired_comparison import lower_bound, mcnemar, n_needed, p_at_most, paired_test, wilson
from recovery.errors import RecoverError


@pytest.mark.parametrize(("passes", "n"), [(0, 1), (0, 20), (20, 20), (3, 7), (380, 400)])
def test_wilson_equals_scipys(passes: int, n: int) -> None:
    expected = stats.binomtest(passes, n).proportion_ci(method="wilson")
    assert wilson(passes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (3, 9), (9, 3), (40, 41), (300, 250)])
def test_mcnemar_is_the_sign_test(lost: int, gained: int) -> None:
    expected = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    assert mcnemar(lost, gained) == pytest.approx(expected)


def test_paired_names_the_items_that_flipped() -> None:
    before = {"a": True, "b": True, "c": False, "d": False, "only before": True}
    after = {"d": True, "c": False, "b": False, "a": True, "only after": True}
    change = paired_test(before, after)
    assert (change.n, change.lost, change.gained, change.difference, change.differ) == (4, ["b"], ["d"], 0.0, 0.5)
    assert change.low < 0 < change.high
    assert change.low == pytest.approx(-change.high)


def test_measurements_without_a_common_item_cannot_be_paired() -> None:
    with pytest.raises(RecoverError, match="same data"):
        paired_test({"a": True}, {"b": True})


@pytest.mark.parametrize(("n", "lost"), [(50, 0), (50, 1), (200, 7), (30, 30)])
def test_without_gains_the_bound_is_clopper_pearsons(n: int, lost: int) -> None:
    exact = stats.beta.ppf(0.95, lost + 1, n - lost) if lost < n else 1.0
    assert lower_bound(n, lost, 0) == pytest.approx(-exact, abs=1e-5)


def test_the_bound_agrees_with_random_draws_of_its_definition() -> None:
    n, lost, gained = 541, 20, 12
    random = np.random.default_rng(0)
    slope = 2 * random.beta(gained, lost + 1, 400_000) - 1
    high_rate, low_rate = random.beta(lost + gained + 1, n - 32, 400_000), random.beta(lost + gained, n - 31, 400_000)
    drawn = np.quantile(np.where(slope < 0, high_rate, low_rate) * slope, 0.05)
    assert lower_bound(n, lost, gained) == pytest.approx(drawn, abs=2e-4)


def test_more_losses_never_raise_the_bound_and_more_gains_never_lower_it() -> None:
    bounds = {(b, c): lower_bound(40, b, c) for b in range(9) for c in range(9)}
    assert all(bounds[b + 1, c] < bounds[b, c] for b in range(8) for c in range(9))
    assert all(bounds[b, c + 1] > bounds[b, c] - 1e-3 for b in range(9) for c in range(8))


@pytest.mark.parametrize("n", [10, 40])
def test_the_bound_is_wrong_at_most_one_time_in_twenty(n: int) -> None:
    """Exact: every possible table, weighted by its probability, over a grid of true shares."""
    tables = all_tables(n)
    bounds = np.array([lower_bound(n, b, c) for b, c in tables])
    worst = 0.0
    for gain in (0.0, 0.005, 0.02, 0.05, 0.1, 0.3):
        for loss in (0.0, 0.01, 0.03, 0.05, 0.1, 0.2, 0.4):
            worst = max(worst, probabilities(tables, n, loss, gain)[bounds > gain - loss + 1e-9].sum())
    assert 0.03 < worst <= 0.05  # the lower limit shows that the bound is not needlessly wide


@pytest.mark.parametrize("level", [1e-4, 1e-5])
def test_the_bound_holds_the_small_levels_of_many_readings(level: float) -> None:
    n, loss, gain = 60, 0.205, 0.195
    tables = all_tables(n)
    p_values = np.array([p_at_most(n, b, c, gain - loss) for b, c in tables])
    assert 0.2 * level < probabilities(tables, n, loss, gain)[p_values < level].sum() <= level


def all_tables(n: int) -> np.ndarray:
    """All counts (lost, gained) of n items."""
    return np.array([(b, c) for b in range(n + 1) for c in range(n + 1 - b)])


def probabilities(tables: np.ndarray, n: int, loss: float, gain: float) -> np.ndarray:
    rest = n - tables.sum(1)
    multiplicity = gammaln(n + 1) - gammaln(tables + 1).sum(1) - gammaln(rest + 1)
    logs = np.log(np.maximum([loss, gain, 1 - loss - gain], 1e-300))
    return np.exp(multiplicity + tables[:, 0] * logs[0] + tables[:, 1] * logs[1] + rest * logs[2])


def test_n_needed_items_give_the_requested_power() -> None:
    margin, differ = 0.03, 0.06
    n = n_needed(margin, differ)
    assert n is not None
    random = np.random.default_rng(2)
    tables = random.multinomial(n, [differ / 2, differ / 2, 1 - differ], size=300)
    power = np.mean([lower_bound(n, b, c) > -margin for b, c, _ in tables])
    assert 0.72 < power < 0.88


def test_n_needed_without_a_difference_and_with_one_at_or_beyond_the_margin() -> None:
    assert n_needed(0.03, differ=0.0) == 99  # 0.97^99 < 5 % < 0.97^98
    assert lower_bound(99, 0, 0) > -0.03 > lower_bound(98, 0, 0)
    assert n_needed(0.03, differ=0.2, difference=-0.05) is None
    assert n_needed(0.0, differ=0.1) is None
    assert n_needed(0.0, differ=0.1, difference=0.05) == pytest.approx(260, abs=60)


def test_a_stricter_bound_needs_more_items() -> None:
    before, after = ({str(i): i % 10 != odd for i in range(200)} for odd in (0, 1))
    usual, strict = (paired_test(before, after, confidence).n_needed(0.05) for confidence in (0.95, 0.99))
    assert usual < strict
