"""What a teacher wrote or learned is taught by all that it would say there; all else by the token that stands there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recovery.batch import Batch, Sample, micro_batches
from recovery.losses.divergences import entropy
from recovery.losses.objectives import CrossEntropy, Divergence
from recovery.models.students import Student, load_student
from recovery.signals import Labels, Signal, SignalBatch, TeacherSignal
from recovery.states import Documents, FixedRows
from recovery.teachers import FrozenTeacher
from recovery.telemetry.step_cost import flops_of_step
from recovery.train import Plan, train
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


def test_it_is_what_the_teachers_draws_come_to_on_average() -> None:
    torch.manual_seed(0)
    said, logits = torch.randn(1, 7).log_softmax(-1), torch.randn(1, 7, requires_grad=True)
    opinion: Any = _Says(said)
    soft = CrossEntropy()(logits, SignalBatch(torch.tensor([0]), opinion, soft_labels=True), slice(None)).loss
    drawn = CrossEntropy()(logits.expand(7, 7), SignalBatch(torch.arange(7)), slice(None)).loss
    averaged = (said[0].exp() * drawn).sum()
    torch.testing.assert_close(soft.squeeze(), averaged - entropy(said).squeeze())
    (of_soft,), (of_draws,) = torch.autograd.grad(soft.sum(), logits), torch.autograd.grad(averaged, logits)
    torch.testing.assert_close(of_soft, of_draws)


def test_each_row_is_taught_in_its_own_way(student: Student, teacher: FrozenTeacher) -> None:
    mixed = gradient(student, Labels(teacher), ROWS)
    total = sum(row.target_count for row in ROWS)
    by_labels = gradient(student, Labels(), HARD) * sum(row.target_count for row in HARD) / total
    by_teacher = gradient(student, TeacherSignal(teacher), SOFT, Divergence(0.0))
    by_teacher = by_teacher * sum(row.target_count for row in SOFT) / total
    assert float(by_teacher.norm()) > 1e-4
    torch.testing.assert_close(mixed, by_labels + by_teacher)


def test_without_a_teacher_the_labels_are_all_there_is(student: Student) -> None:
    hard = [replace(row, soft_labels=False) for row in ROWS]
    torch.testing.assert_close(gradient(student, Labels(), ROWS), gradient(student, Labels(), hard))


def test_rows_to_be_read_by_a_teacher_are_cut_apart_from_the_others(teacher: FrozenTeacher) -> None:
    for size in (1, 20, 40, 10_000):
        cut = list(micro_batches(ROWS, size))
        assert sorted(row.tokens for rows in cut for row in rows) == sorted(row.tokens for row in ROWS)
        assert all(len({row.soft_labels for row in rows}) == 1 for rows in cut)
    with pytest.raises(ValueError, match="separate batches"):
        Labels(teacher).compute(Batch.collate(ROWS, 0))


def test_the_teacher_is_paid_for_what_it_reads(student: Student, teacher: FrozenTeacher) -> None:
    mixed, alone = (flops_of_step(student, signal, ROWS, rolled_out=False) for signal in (Labels(teacher), Labels()))
    assert mixed - alone == pytest.approx(teacher.flops(SOFT))


def test_windows_that_a_model_is_asked_about_say_so_and_which(student: Student) -> None:
    drawn = Documents([[1] * 40] * 4, 0, window=16, rows=3, soft_rows=2, domain="earlier").draw(student, 0)
    assert [(row.soft_labels, row.domain) for row in drawn] == [
        (True, "earlier"),
        (True, "earlier"),
        (False, "earlier"),
    ]


def gradient(
    student: Student, signal: Signal, rows: list[Sample], objective: CrossEntropy | Divergence | None = None
) -> torch.Tensor:
    plan = Plan(1, 0.0, clip_norm=1e9)
    next(train(student, FixedRows(rows, rows=len(rows)), signal, objective or CrossEntropy(), plan))
    return torch.cat([p.grad.flatten() for p in student.trainable() if p.grad is not None])


class _Says:
    def __init__(self, logprobs: torch.Tensor):
        self._logprobs = logprobs

    def logprobs(self, part: slice) -> torch.Tensor:
        return self._logprobs[part]
