import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recovery.divergences import divergence, entropy, forward_kl, reverse_kl, with_tail


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_the_worked_example_with_three_tokens() -> None:
    teacher, student = logs(0.7, 0.2, 0.1), logs(0.5, 0.4, 0.1)
    assert float(forward_kl(student, teacher)) == pytest.approx(0.097, abs=5e-4)
    assert float(reverse_kl(student, teacher)) == pytest.approx(0.109, abs=5e-4)


def test_a_token_only_the_teacher_favours_dominates_the_forward_kl() -> None:
    student, teacher = 0.01, 0.6
    ratio = math.log(teacher / student)
    assert ratio == pytest.approx(4.09, abs=5e-3)
    assert teacher * ratio == pytest.approx(2.46, abs=5e-3)  # its share of KL(T‖S)
    assert student * -ratio == pytest.approx(-0.04, abs=5e-3)  # its share of KL(S‖T)


def test_jensen_shannon_tends_to_both_kls() -> None:
    teacher, student = logs(0.7, 0.2, 0.1), logs(0.5, 0.4, 0.1)
    small = 1e-6
    assert float(divergence(student, teacher, small)) / small == pytest.approx(
        float(forward_kl(student, teacher)), rel=1e-4
    )
    assert float(divergence(student, teacher, 1 - small)) / small == pytest.approx(
        float(reverse_kl(student, teacher)), rel=1e-4
    )
    assert divergence(student, teacher, 0.0) == forward_kl(student, teacher)
    assert divergence(student, teacher, 1.0) == reverse_kl(student, teacher)


def test_beta_one_half_is_symmetric_and_at_most_log_two() -> None:
    teacher, student = logs(0.98, 0.01, 0.01), logs(0.01, 0.01, 0.98)
    forward, backward = divergence(student, teacher, 0.5), divergence(teacher, student, 0.5)
    assert float(forward) == pytest.approx(float(backward))
    assert float(forward) < math.log(2)


def test_a_token_of_zero_student_probability_adds_nothing_to_the_reverse_kl() -> None:
    student, teacher = logs(0.5, 0.5, 0.0), logs(0.25, 0.25, 0.5)
    assert float(reverse_kl(student, teacher)) == pytest.approx(math.log(2))
    assert float(entropy(student)) == pytest.approx(math.log(2))


def naive(student: list[float], teacher: list[float], beta: float) -> float:
    def kl(p: list[float], q: list[float]) -> float:
        return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)

    if beta in (0.0, 1.0):
        return kl(teacher, student) if beta == 0.0 else kl(student, teacher)
    mixture = [beta * t + (1 - beta) * s for s, t in zip(student, teacher, strict=True)]
    return beta * kl(teacher, mixture) + (1 - beta) * kl(student, mixture)


weights = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8)


@given(weights, weights, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_every_divergence_equals_the_explicit_sum(a: list[float], b: list[float], beta: float) -> None:
    n = min(len(a), len(b))
    p, q = [x / sum(a[:n]) for x in a[:n]], [x / sum(b[:n]) for x in b[:n]]
    assert float(divergence(logs(*p), logs(*q), beta)) == pytest.approx(naive(p, q, beta), abs=1e-12)
    assert float(divergence(logs(*p), logs(*q), beta)) >= -1e-12
    assert float(divergence(logs(*p), logs(*p), beta)) == pytest.approx(0, abs=1e-12)


@given(weights, weights, st.integers(1, 7), st.sampled_from([0.0, 0.5, 1.0]))
def test_reducing_to_some_tokens_and_a_tail_never_increases_the_divergence(
    a: list[float], b: list[float], k: int, beta: float
) -> None:
    n = min(len(a), len(b))
    p, q = logs(*[x / sum(a[:n]) for x in a[:n]]), logs(*[x / sum(b[:n]) for x in b[:n]])
    top = p.topk(min(k, n)).indices
    coarse = divergence(with_tail(p[top]), with_tail(q[top]), beta)
    assert float(with_tail(p[top]).exp().sum()) == pytest.approx(1)
    assert float(coarse) <= float(divergence(p, q, beta)) + 1e-9
    if k >= n:
        assert float(coarse) == pytest.approx(float(divergence(p, q, beta)), abs=1e-9)
