from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recovery.chunked_loss import LossTerms
from recovery.divergences import clipped_divergence, divergence, forward_kl, reverse_kl
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy, Divergence, SampledGradient
from recovery.samples import Batch, Sample
from recovery.server_teacher import ListedLogprobs
from recovery.signals import SignalBatch, TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import FrozenTeacher, TeacherLogprobs
from recovery.telemetry import report_tokens
from recovery.train import Plan, train
from tests.models import save_tiny
from tests.recovery.fixed_teacher import FixedTeacher

V, N = 11, 4
ALL = slice(None)
STOPS = st.lists(st.integers(0, V - 1), min_size=2, max_size=3, unique=True).map(sorted).map(tuple)


def normal(seed: int, *shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(seed: int) -> tuple[Tensor, Tensor]:
    return normal(seed, N, V).requires_grad_(), normal(seed + 1, N, V).log_softmax(-1)


def with_one_stop(log_p: Tensor, stops: tuple[int, ...]) -> Tensor:
    """The reference: the other ids, and the sum of the stops' probabilities."""
    p = log_p.exp()
    others = [i for i in range(V) if i not in stops]
    return torch.cat([p[:, others], p[:, list(stops)].sum(-1, keepdim=True)], dim=-1).log()


def which_stop(log_p: Tensor, teacher: Tensor, stops: tuple[int, ...]) -> Tensor:
    """The reference: what the chain rule of KL(teacher ‖ p) leaves beside the stops as one event."""
    return forward_kl(log_p, teacher) - forward_kl(with_one_stop(log_p, stops), with_one_stop(teacher, stops))


def loss(
    objective: object, logits: Tensor, teacher: TeacherLogprobs, stops: tuple[int, ...], **fields: object
) -> Tensor:
    signal = SignalBatch(torch.zeros(len(logits), dtype=torch.long), teacher, stops=stops, **fields)  # type: ignore[arg-type]
    terms: LossTerms = objective(logits, signal, ALL)  # type: ignore[operator]
    return terms.loss


def assert_equal_with_gradients(ours: Tensor, expected: Tensor, logits: Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-11)
    (gradient,) = torch.autograd.grad(ours.sum(), logits, retain_graph=True)
    (reference,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(gradient, reference, rtol=1e-8, atol=1e-10)


@given(st.integers(0, 10_000), STOPS, st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.05]))
@settings(max_examples=90, deadline=None)
def test_divergences_are_those_of_the_summed_probabilities_which_a_clip_bounds_as_one_event_and_of_which_stop_it_is(
    seed: int, stops: tuple[int, ...], beta: float, clip: float
) -> None:
    logits, teacher = pair(seed)
    ours = loss(Divergence(beta, clip=clip), logits, FixedTeacher(teacher), stops)
    log_p = logits.log_softmax(-1)
    merged = with_one_stop(log_p, stops), with_one_stop(teacher, stops)
    expected = clipped_divergence(*merged, beta, clip, "zero")[0] if clip else divergence(*merged, beta)
    expected = expected + which_stop(log_p, teacher, stops)
    assert_equal_with_gradients(ours, expected, logits)


@given(st.integers(0, 10_000), STOPS)
@settings(max_examples=20, deadline=None)
def test_soft_labels_and_the_anchor_are_the_whole_kl(seed: int, stops: tuple[int, ...]) -> None:
    logits, teacher = pair(seed)
    expected = forward_kl(logits.log_softmax(-1), teacher)
    soft = loss(CrossEntropy(), logits, FixedTeacher(teacher), stops, soft_labels=True)
    assert_equal_with_gradients(soft, expected, logits)
    anchored, plain = (loss(CrossEntropy(anchor=weight), logits, FixedTeacher(teacher), stops) for weight in (0.1, 0.0))
    torch.testing.assert_close(anchored - plain, 0.1 * expected)


@given(st.integers(0, 10_000), STOPS)
@settings(max_examples=20, deadline=None)
def test_which_stop_it_is_has_the_weight_of_the_teacher_and_of_the_anchor(seed: int, stops: tuple[int, ...]) -> None:
    logits, teacher = pair(seed)
    log_p = logits.log_softmax(-1)
    merged, which = (with_one_stop(log_p, stops), with_one_stop(teacher, stops)), which_stop(log_p, teacher, stops)
    whole = reverse_kl(*merged) + which

    def of_sampled(anchor: float, weight: float) -> Tensor:
        fields = {"rollout_logprobs": log_p.detach()[:, 0], "advantage": torch.zeros(N), "teacher_weight": weight}
        return loss(SampledGradient(1e9, anchor=anchor), logits, FixedTeacher(teacher), stops, **fields)

    torch.testing.assert_close(
        loss(Divergence(), logits, FixedTeacher(teacher), stops, teacher_weight=0.3), 0.3 * whole
    )
    torch.testing.assert_close(of_sampled(0.1, 0.0), 0.1 * whole)
    torch.testing.assert_close(of_sampled(0.1, 0.3) - of_sampled(0.0, 0.3), 0.1 * whole)


def test_a_stop_without_probability_adds_nothing() -> None:
    logits, teacher = pair(1)
    teacher = teacher.clone()
    teacher[:, 4] = -torch.inf
    soft = loss(CrossEntropy(), logits, FixedTeacher(teacher), (1, 4), soft_labels=True)
    assert_equal_with_gradients(soft, forward_kl(logits.log_softmax(-1), teacher), logits)


def ends_with(token: int) -> Tensor:
    logits = torch.zeros(1, V)
    logits[0, token] = 25.0
    return logits


def sampled(logits: Tensor, teacher: Tensor, stops: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The loss at each token that the student may sample, and how likely it is to."""
    log_p = logits.log_softmax(-1).detach()
    signal = SignalBatch(torch.arange(V), FixedTeacher(teacher.expand(V, V)), log_p[0], stops=stops)
    batch = Batch.collate([Sample([0] * (V + 1), [False] + [True] * V)], 0)
    signal = SampledGradient().prepare(signal, batch, 1.0)
    return SampledGradient()(logits.expand(V, V), signal, ALL).loss, log_p.exp()[0]


@given(st.integers(0, 10_000), STOPS)
@settings(max_examples=30, deadline=None)
def test_the_sampled_gradient_is_on_average_that_of_the_exact_divergence(seed: int, stops: tuple[int, ...]) -> None:
    logits, teacher = normal(seed, 1, V).requires_grad_(), normal(seed + 1, 1, V).log_softmax(-1)
    losses, p = sampled(logits, teacher, stops)
    (mean,) = torch.autograd.grad((p * losses).sum(), logits)  # which stop it is does not depend on the sample
    exact = loss(Divergence(), logits, FixedTeacher(teacher), stops)
    (expected,) = torch.autograd.grad(exact.sum(), logits)
    torch.testing.assert_close(mean, expected, rtol=1e-8, atol=1e-10)


@given(st.integers(0, 10_000), STOPS, st.integers(1, V - 1), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_stops_that_a_server_lists_are_one_event(seed: int, stops: tuple[int, ...], count: int, beta: float) -> None:
    logits, teacher = pair(seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.stack([torch.randperm(V, generator=generator)[:count] for _ in range(N)])
    ours = loss(Divergence(beta), logits, ListedLogprobs(tokens, teacher.gather(-1, tokens)), stops)
    expected = []
    for row, theirs, listed in zip(logits.log_softmax(-1), teacher, tokens.tolist(), strict=True):
        listed_stops = [i for i in listed if i in stops]
        groups = [[i] for i in listed if i not in stops] + [listed_stops]
        groups.append([i for i in range(V) if i not in listed])
        reduced = [torch.stack([x[g].exp().sum() for g in groups if g]).log() for x in (row, theirs)]
        among = [x[listed_stops].log_softmax(-1) for x in (row, theirs)]
        which = theirs[listed_stops].exp().sum() * forward_kl(*among) if listed_stops else 0.0
        expected.append(divergence(reduced[0], reduced[1], beta) + which)
    assert_equal_with_gradients(ours, torch.stack(expected), logits)


def test_the_sampled_loss_merges_the_stops_that_a_server_lists() -> None:
    logits, teacher = ends_with(1).requires_grad_(), ends_with(4).log_softmax(-1)
    tokens = torch.tensor([[1, 0, 4]])
    signal = SignalBatch(
        tokens[:, 0],
        ListedLogprobs(tokens, teacher.gather(-1, tokens)),
        logits.log_softmax(-1).detach()[:, 1],
        advantage=torch.zeros(1),
        stops=(1, 4),
    )
    terms = SampledGradient()(logits, signal, ALL)
    assert float(terms.loss.detach()) == pytest.approx(25, abs=1e-3)  # which stop it is
    assert terms.metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert terms.metrics["stop_teacher"] == pytest.approx(1)


ROWS = [Sample([5, 6, 7, 8, 9], [False, False, True, True, True], [-5.0] * 3) for _ in range(2)]


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", eos=[2, 0])))


@pytest.fixture
def ends_otherwise(student: Student) -> FrozenTeacher:
    """The same model, but for the ids 0 and 2: each is as likely as the other was."""
    teacher = FrozenTeacher(student.path)
    rows = teacher.model.causal.get_output_embeddings().weight
    rows.data[[0, 2]] = rows.data[[2, 0]]
    return teacher


def test_training_compares_stops_and_records_their_probability(student: Student, ends_otherwise: FrozenTeacher) -> None:
    log_p = FrozenTeacher(student.path).distribution(Batch.collate(ROWS, 0)).logprobs(ALL)
    log_q = ends_otherwise.distribution(Batch.collate(ROWS, 0)).logprobs(ALL)
    assert float(reverse_kl(log_p, log_q).mean()) > 1e-6
    for objective in (Divergence(), SampledGradient()):
        states, signal = FixedRows(ROWS, rows=2), TeacherSignal(ends_otherwise)
        record = next(train(student, states, signal, objective, Plan(1, 0.0)))
        assert record.kl == pytest.approx(0, abs=3e-7)  # the rounding of float32
        stopping = float(log_p[:, [0, 2]].exp().sum(-1).mean())
        assert record.metrics()["stop_student"] == pytest.approx(stopping, rel=1e-5)
        assert record.metrics()["stop_teacher"] == pytest.approx(stopping, rel=1e-5)
        if isinstance(objective, Divergence):  # all that is left to learn is which of the two it is
            assert record.loss == pytest.approx(float(forward_kl(log_p, log_q).mean()), abs=1e-6)
    assert all(abs(token.kl) < 1e-6 for row in report_tokens(student, ends_otherwise, ROWS) for token in row)


def test_ids_that_the_head_in_use_lacks_are_no_stops(student: Student) -> None:
    assert student.stops == (0, 2)
    student.vocabulary = 2
    assert student.stops == (0,)
