"""Compared with brute force, scipy and analytical results."""

import numpy as np
import pytest
from scipy import stats

from evals.drift.distances import (
    States,
    centroid_distance,
    median_distance,
    mmd,
    sliced_wasserstein,
    standardize,
    wasserstein,
)
from recovery.errors import RecoverError


def states_of(features: np.ndarray, prompts: int) -> States:
    return States(features, np.arange(len(features)) % prompts)


def pair(
    random: np.random.Generator, *, shift: float = 0.0, prompts: int = 12, states: int = 5, width: int = 3
) -> tuple[States, States]:
    """Two models' states on the same prompts, with variance between prompts, rollouts and states in falling order."""
    sides = []
    prompt_means = random.normal(size=(prompts, 1, width)) * 2
    for offset in (0.0, shift):
        rollouts = prompt_means + random.normal(size=(prompts, 1, width)) + offset
        features = rollouts + 0.3 * random.normal(size=(prompts, states, width))
        sides.append(States(features.reshape(-1, width), np.repeat(np.arange(prompts), states)))
    return sides[0], sides[1]


def test_mmd_is_the_mean_over_all_pairs_of_different_prompts() -> None:
    random = np.random.default_rng(0)
    before, after = states_of(random.normal(size=(14, 3)), 5), states_of(random.normal(size=(11, 3)) + 0.5, 5)
    x, y = standardize(before.features, after.features)
    width = median_distance(x, y)

    def mean(a: np.ndarray, b: np.ndarray, prompts_a: np.ndarray, prompts_b: np.ndarray) -> float:
        return float(
            np.mean(
                [
                    np.exp(-np.sum((p - q) ** 2) / (2 * width**2))
                    for p, i in zip(a, prompts_a, strict=True)
                    for q, j in zip(b, prompts_b, strict=True)
                    if i != j
                ]
            )
        )

    i, j = before.prompts, after.prompts
    expected = mean(x, x, i, i) + mean(y, y, j, j) - 2 * mean(x, y, i, j)
    result = mmd(before, after, permutations=20)
    assert result.value == pytest.approx(expected, abs=1e-6)
    both = np.concatenate([x, y])
    gaps = [np.linalg.norm(both[i] - both[j]) for i in range(25) for j in range(i)]
    assert width == pytest.approx(np.median(gaps), rel=1e-5)


def test_the_p_value_is_that_of_all_swaps_of_whole_prompts() -> None:
    random = np.random.default_rng(1)
    before, after = pair(random, prompts=4, states=3)
    values = {}
    for code in range(16):
        swap = np.array([(code >> i) & 1 for i in range(4)], bool)[before.prompts]
        mixed = (
            np.where(swap[:, None], after.features, before.features),
            np.where(swap[:, None], before.features, after.features),
        )
        values[code] = mmd(States(mixed[0], before.prompts), States(mixed[1], before.prompts), permutations=1).value
    exact = np.mean([value >= values[0] - 1e-7 for value in values.values()])
    assert mmd(before, after, permutations=20_000).p_value == pytest.approx(exact, abs=0.02)


def test_p_values_are_uniform_for_equal_models_with_dependent_states() -> None:
    random = np.random.default_rng(2)
    results = [mmd(*pair(random), permutations=99, seed=i) for i in range(300)]
    assert stats.kstest([f.p_value - random.random() / 100 for f in results], "uniform").pvalue > 0.01
    values = [f.value for f in results]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))  # unbiased


def test_a_shift_is_detected_and_a_larger_shift_has_a_larger_distance() -> None:
    random = np.random.default_rng(3)
    near, far = pair(random, shift=1.0, prompts=40), pair(random, shift=3.0, prompts=40)
    for measure in (lambda *a: mmd(*a).value, centroid_distance, sliced_wasserstein):
        assert 0 < measure(*near) < measure(*far)
    assert mmd(*near).p_value < 0.05
    assert mmd(*far).p_value < 0.005


def test_a_change_of_variance_is_detected() -> None:
    random = np.random.default_rng(4)
    before = states_of(random.normal(size=(300, 2)), 100)
    after = states_of(random.normal(size=(300, 2)) * 2.5, 100)
    assert mmd(before, after).p_value < 0.01


@pytest.mark.parametrize(("n", "m"), [(50, 50), (50, 20), (7, 30), (1, 5)])
def test_wasserstein_equals_scipys(n: int, m: int) -> None:
    random = np.random.default_rng(n)
    x, y = random.normal(size=(n, 4)), random.normal(size=(m, 4)) + 1
    expected = [stats.wasserstein_distance(x[:, i], y[:, i]) for i in range(4)]
    assert wasserstein(x, y) == pytest.approx(expected)


def test_sliced_wasserstein_of_a_shift_has_its_analytical_value() -> None:
    """A shift by v moves a projection by v · direction, whose mean length in two dimensions is 2/π."""
    points = np.random.default_rng(5).normal(size=(500, 2))
    before, after = states_of(points, 10), states_of(points + np.array([3.0, 0.0]), 10)
    x, y = standardize(before.features, after.features)
    length = np.linalg.norm(y[0] - x[0])
    assert sliced_wasserstein(before, after, projections=4000) == pytest.approx(length * 2 / np.pi, rel=0.02)
    assert centroid_distance(before, after) == pytest.approx(length, rel=1e-4)


def test_a_constant_feature_becomes_zero() -> None:
    x = np.array([[1.0, 7.0], [2.0, 7.0]])
    assert np.array_equal(standardize(x, x)[0][:, 1], [0.0, 0.0])


def test_states_of_different_prompts_cannot_be_compared() -> None:
    x = np.zeros((2, 1))
    with pytest.raises(RecoverError, match="same ones"):
        mmd(States(x, np.array([1, 2])), States(x, np.array([1, 3])))
    with pytest.raises(RecoverError, match="at least two"):
        mmd(States(x, np.array([1, 1])), States(x, np.array([1, 1])))
