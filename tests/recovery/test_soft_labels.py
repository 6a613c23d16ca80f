from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recovery.models.students import Student
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Labels, TeacherSignal
from recovery.states import CommonTokens, Documents
from recovery.teachers import FrozenTeacher
from recovery.telemetry import flops_of_step
from recovery.train import Plan, train
from tests.gradients import gradient_of_step
from tests.models import tiny_student

ROWS = [
    Sample(list(range(5 + i, 12 + 2 * i)), [False] * 2 + [True] * (5 + i), soft_labels=i % 2 == 0) for i in range(6)
]
SOFT, HARD = ([row for row in ROWS if row.soft_labels is soft] for soft in (True, False))


def test_a_mixed_batch_combines_both_gradients(student: Student, teacher: FrozenTeacher) -> None:
    mixed = gradient_of_step(student, ROWS, Labels(teacher), CrossEntropy())
    total = sum(row.target_count for row in ROWS)
    by_labels = gradient_of_step(student, HARD, Labels(), CrossEntropy())
    by_labels = by_labels * sum(row.target_count for row in HARD) / total
    by_teacher = gradient_of_step(student, SOFT, TeacherSignal(teacher), Divergence(0.0))
    by_teacher = by_teacher * sum(row.target_count for row in SOFT) / total
    assert float(by_teacher.norm()) > 1e-4
    torch.testing.assert_close(mixed, by_labels + by_teacher)


def test_without_a_teacher_soft_labels_fall_back_to_labels(student: Student) -> None:
    hard = [replace(row, soft_labels=False) for row in ROWS]
    ours, expected = (gradient_of_step(student, rows, Labels(), CrossEntropy()) for rows in (ROWS, hard))
    torch.testing.assert_close(ours, expected)


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
    assert [row.soft_labels for row in drawn] == [True, True, False]
    assert {row.domain for row in drawn} == {"earlier"}
    mixed = Documents([[1] * 40] * 4, 0, window=16, rows=3, soft_rows=2, use_labels=True).draw(student, 0)
    assert [row.use_labels for row in mixed] == [False, False, True]


DOCUMENT = [40, 41, 42, 43, 44, 45, 46, 47] * 4


@pytest.mark.parametrize("objective", [Divergence(), Divergence(beta=0.0), SampledGradient(), CrossEntropy(dft=True)])
def test_label_rows_have_the_gradient_of_cross_entropy_in_any_objective(objective: Objective, tmp_path: Path) -> None:
    documents = Documents([DOCUMENT], 0, window=16, rows=2, use_labels=True)
    plain = Documents([DOCUMENT], 0, window=16, rows=2)
    student, reference = tiny_student(tmp_path), tiny_student(tmp_path)
    signal = Labels() if isinstance(objective, CrossEntropy) else TeacherSignal(FrozenTeacher(student.path))
    [record] = train(student, documents, signal, objective, Plan(1, 1e-3))
    [expected] = train(reference, plain, Labels(), CrossEntropy(), Plan(1, 1e-3))
    assert record.loss == expected.loss
    assert record.kl is None
    for ours, theirs in zip(student.model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_tokens_that_the_teacher_lacks_are_no_targets(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    student.vocabulary = 44  # as if the teacher had no further ones
    documents = Documents([DOCUMENT], 0, window=16, rows=2, use_labels=True)
    for states, has_others in ((CommonTokens(documents, None), True), (CommonTokens(documents, 44), False)):
        batch = Batch.collate(states.draw(student, 0), 0)
        assert bool((batch.target_tokens >= 44).any()) == has_others
        assert len(batch.target_tokens)
    [record] = train(student, CommonTokens(documents, 44), Labels(), CrossEntropy(), Plan(1, 1e-3))
    assert record.loss > 0


def test_the_teacher_reads_no_label_rows(tmp_path: Path) -> None:
    rows = [Sample([1, 2, 3], [False, True, True], use_labels=use) for use in (False, True, False)]
    batches = list(micro_batches(rows, 100))
    assert [{s.use_labels for s in batch} for batch in batches] == [{False}, {True}]
    signal = TeacherSignal(FrozenTeacher(tiny_student(tmp_path).path))
    assert signal.flops(rows) == signal.flops([rows[0], rows[2]])
