"""Samples with soft labels learn the teacher's distribution; all others learn the token in the data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recovery.divergences import entropy
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy, Divergence
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Labels, Signal, SignalBatch, TeacherSignal
from recovery.states import Documents
from recovery.teachers import FrozenTeacher, Part, TeacherLogprobs
from recovery.telemetry import flops_of_step
from recovery.train import Plan
from tests.gradients import gradient_of_step
from tests.models import save_tiny

ROWS = [
    Sample(list(range(5 + i, 12 + 2 * i)), [False] * 2 + [True] * (5 + i), soft_labels=i % 2 == 0) for i in range(6)
]
SOFT, HARD = ([row for row in ROWS if row.soft_labels is soft] for soft in (True, False))


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", seed=3)), dtype=torch.float64)


@pytest.fixture
def teacher(tmp_path: Path) -> FrozenTeacher:
    return FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)), dtype=torch.float64)


def test_soft_labels_equal_the_average_over_sampled_labels() -> None:
    torch.manual_seed(0)
    teacher_logprobs, logits = torch.randn(1, 7).log_softmax(-1), torch.randn(1, 7, requires_grad=True)
    teacher: Any = _FixedLogprobs(teacher_logprobs)
    soft = CrossEntropy()(logits, SignalBatch(torch.tensor([0]), teacher, soft_labels=True), slice(None)).loss
    drawn = CrossEntropy()(logits.expand(7, 7), SignalBatch(torch.arange(7)), slice(None)).loss
    averaged = (teacher_logprobs[0].exp() * drawn).sum()
    torch.testing.assert_close(soft.squeeze(), averaged - entropy(teacher_logprobs).squeeze())
    (soft_grad,), (average_grad,) = torch.autograd.grad(soft.sum(), logits), torch.autograd.grad(averaged, logits)
    torch.testing.assert_close(soft_grad, average_grad)


def test_a_mixed_batch_combines_both_gradients(student: Student, teacher: FrozenTeacher) -> None:
    mixed = gradient(student, Labels(teacher), ROWS)
    total = sum(row.target_count for row in ROWS)
    by_labels = gradient(student, Labels(), HARD) * sum(row.target_count for row in HARD) / total
    by_teacher = gradient(student, TeacherSignal(teacher), SOFT, Divergence(0.0))
    by_teacher = by_teacher * sum(row.target_count for row in SOFT) / total
    assert float(by_teacher.norm()) > 1e-4
    torch.testing.assert_close(mixed, by_labels + by_teacher)


def test_without_a_teacher_soft_labels_fall_back_to_labels(student: Student) -> None:
    hard = [replace(row, soft_labels=False) for row in ROWS]
    torch.testing.assert_close(gradient(student, Labels(), ROWS), gradient(student, Labels(), hard))


def test_samples_with_soft_labels_get_batches_of_their_own(teacher: FrozenTeacher) -> None:
    for size in (1, 20, 40, 10_000):
        groups = list(micro_batches(ROWS, size))
        assert sorted(row.tokens for rows in groups for row in rows) == sorted(row.tokens for row in ROWS)
        assert all(len({row.soft_labels for row in rows}) == 1 for rows in groups)
    with pytest.raises(ValueError, match="separate batches"):
        Labels(teacher).compute(Batch.collate(ROWS, 0))


def test_the_teachers_flops_are_counted_for_soft_labels_only(student: Student, teacher: FrozenTeacher) -> None:
    mixed, alone = (flops_of_step(student, signal, ROWS, rolled_out=False) for signal in (Labels(teacher), Labels()))
    assert mixed - alone == pytest.approx(teacher.flops(SOFT))


def test_the_first_windows_of_a_draw_have_soft_labels_and_a_domain(student: Student) -> None:
    drawn = Documents([[1] * 40] * 4, 0, window=16, rows=3, soft_rows=2, domain="earlier").draw(student, 0)
    assert [(row.soft_labels, row.domain) for row in drawn] == [
        (True, "earlier"),
        (True, "earlier"),
        (False, "earlier"),
    ]


def gradient(
    student: Student, signal: Signal, rows: list[Sample], objective: CrossEntropy | Divergence | None = None
) -> torch.Tensor:
    return gradient_of_step(student, rows, signal, objective or CrossEntropy(), Plan(1, 0.0, clip_norm=1e9))


class _FixedLogprobs(TeacherLogprobs):
    def __init__(self, logprobs: torch.Tensor):
        self._logprobs = logprobs

    def logprobs(self, part: Part) -> torch.Tensor:
        return self._logprobs[part]
