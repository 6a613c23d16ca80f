"""Verdicts on simulated studies: planted false claims are refuted and planted true ones supported, at the declared
error."""

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.stats.claims import Hypothesis, SeedDifferences, decide, holm_levels
from recovery.errors import RecoverError
from tests.evals.stats.simulated_arms import simulated

ERROR = 0.05
RUNS = 240


def verdicts(*hypotheses: Hypothesis) -> list[str]:
    return [decision.verdict for decision in decide(hypotheses, ERROR)]


@pytest.mark.parametrize("shared", [True, False], ids=["the same items", "other items"])
@pytest.mark.parametrize("seeds", [3, 5])
def test_under_the_null_a_claim_is_supported_as_rarely_as_declared(seeds: int, shared: bool) -> None:
    rng = np.random.default_rng(seeds)
    runs = [simulated(rng, 0.0, seeds=seeds, shared=shared) for _ in range(RUNS)]
    supported = fmean(verdicts(Hypothesis(run, "above", 0.03)) == ["supported"] for run in runs)
    assert supported <= ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / RUNS)


@pytest.mark.slow
def test_among_several_false_claims_any_is_supported_as_rarely_as_declared() -> None:
    rng = np.random.default_rng(2)
    studies = [[Hypothesis(simulated(rng, 0.0), "above", 0.03) for _ in range(4)] for _ in range(RUNS // 2)]
    any_supported = fmean("supported" in verdicts(*study) for study in studies)
    assert any_supported <= ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / (RUNS // 2))


def test_planted_claims_are_found() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        true = Hypothesis(simulated(rng, 0.30, seeds=5), "above", 0.03)
        false = Hypothesis(simulated(rng, -0.30, seeds=5), "above", 0.03)
        kept = Hypothesis(simulated(rng, 0.0, seeds=5, items=2000, between=0.002, item_spread=0.02), "not below", 0.05)
        lost = Hypothesis(simulated(rng, -0.30, seeds=5), "not below", 0.05)
        assert verdicts(true, false, kept, lost) == ["supported", "refuted", "supported", "refuted"]


def test_no_difference_that_matters_refutes_a_claim_of_one() -> None:
    """The interval is past the opposite margin: whatever the gain is, it is smaller than the claim's margin."""
    rng = np.random.default_rng(4)
    found = [
        verdicts(Hypothesis(simulated(rng, 0.0, items=3000, between=0.002, item_spread=0.02), "above", 0.05))[0]
        for _ in range(60)
    ]
    assert found.count("refuted") > 45
    assert found.count("supported") <= 8


def test_where_no_arm_could_be_better_a_claim_of_more_is_refuted_only_by_less() -> None:
    equal, worse = SeedDifferences((0.0, 0.001, -0.001), 0.001, 400), SeedDifferences((-0.3, -0.31, -0.29), 0.01, 400)
    assert verdicts(Hypothesis(equal, "above", 0.03)) == ["refuted"]
    (decision,) = decide([Hypothesis(equal, "above", 0.03, room=0.0)], ERROR)
    assert (decision.verdict, decision.needed) == (
        "cannot tell",
        "harder items: the other arm leaves no more than 0.000",
    )
    assert verdicts(Hypothesis(worse, "above", 0.03, room=0.0)) == ["refuted"]
    assert verdicts(Hypothesis(equal, "not below", 0.03, room=0.0)) == ["supported"]


def test_a_true_claim_at_its_margin_is_refuted_as_rarely_as_declared() -> None:
    rng = np.random.default_rng(5)
    runs = [simulated(rng, 0.10, item_spread=0.0) for _ in range(RUNS)]
    expected = fmean(run.estimate for run in runs)  # clipping moves the simulated difference a little
    refuted = fmean(verdicts(Hypothesis(run, "above", expected)) == ["refuted"] for run in runs)
    assert refuted <= ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / RUNS)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_give_no_verdict(seeds: int) -> None:
    sample = simulated(np.random.default_rng(0), 0.5, seeds=seeds)
    (decision,) = decide([Hypothesis(sample, "above", 0.03)])
    assert decision.verdict == "no verdict"
    assert decision.needed == f"a verdict needs at least 3 seeds, and this has {seeds}"


def test_an_undecided_claim_says_how_many_seeds_would_decide_it() -> None:
    noisy = SeedDifferences((0.02, 0.06, 0.13), 0.005, 1000)
    (decision,) = decide([Hypothesis(noisy, "above", 0.03)])
    assert decision.verdict == "cannot tell"
    count = int(decision.needed.split()[0])
    assert decision.needed == f"{count} seeds"
    again = SeedDifferences(noisy.means * (count // 3 + 1), 0.005, 1000)
    assert verdicts(Hypothesis(again, "above", 0.03)) == ["supported"]


def test_where_items_are_too_few_more_items_are_needed() -> None:
    few = SeedDifferences((0.050, 0.051, 0.049), 0.08, 40)
    (decision,) = decide([Hypothesis(few, "above", 0.03)])
    assert "items" in decision.needed


def test_seeds_without_any_difference_still_have_an_error() -> None:
    (decision,) = decide([Hypothesis(SeedDifferences.of_items([{"a": 0.0, "b": 0.0}] * 3), "not below", 0.03)])
    assert decision.verdict == "cannot tell", "two items show nothing"


def test_arms_without_a_shared_item_are_refused() -> None:
    with pytest.raises(RecoverError, match="share no item"):
        SeedDifferences.of_items([{"a": 1.0}, {}])


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=8), st.floats(0, 0.2), st.floats(-0.5, 0.5))
def test_the_interval_decides_as_the_p_value_does(means: list[float], error: float, limit: float) -> None:
    sample = SeedDifferences(tuple(means), error, 100)
    p, low = sample.p_above(limit), sample.estimate - sample.half_width(ERROR)
    if abs(low - limit) > 1e-6:
        assert (p < ERROR) == (low > limit)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_levels_reject_what_holm_rejects(p_values: list[float]) -> None:
    levels = holm_levels(p_values, ERROR)
    ordered = sorted(p_values)
    kept = next((rank for rank, p in enumerate(ordered) if p >= ERROR / (len(ordered) - rank)), len(ordered))
    assert sum(p < level for p, level in zip(p_values, levels, strict=True)) == kept
    assert all(ERROR / len(p_values) <= level <= ERROR for level in levels)


def test_a_difference_of_differences_has_both_errors() -> None:
    long, short = SeedDifferences((0.2, 0.3, 0.4), 0.03, 10), SeedDifferences((0.1, 0.1, 0.1), 0.04, 20)
    assert long.minus(short).means == pytest.approx((0.1, 0.2, 0.3))
    assert long.minus(short).item_error == pytest.approx(0.05)
