"""Rows that learn the teacher's distribution, and rows that learn labels beside rows that learn from a teacher."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Labels, TeacherSignal
from recovery.states import CommonTokens, Documents, FixedRows, Mixture
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
    assert [(row.soft_labels, row.domain) for row in drawn] == [
        (True, "earlier"),
        (True, "earlier"),
        (False, "earlier"),
    ]


DOCUMENT = [40, 41, 42, 43, 44, 45, 46, 47] * 4


@pytest.mark.parametrize("objective", [Divergence(), Divergence(beta=0.0), SampledGradient()])
def test_label_rows_have_the_gradient_of_cross_entropy_whatever_the_objective(
    objective: Objective, tmp_path: Path
) -> None:
    documents = Documents([DOCUMENT], 0, window=16, rows=2, use_labels=True)
    plain = Documents([DOCUMENT], 0, window=16, rows=2)
    student, reference = tiny_student(tmp_path), tiny_student(tmp_path)
    signal = TeacherSignal(FrozenTeacher(student.path))
    [record] = train(student, documents, signal, objective, Plan(1, 1e-3))
    [expected] = train(reference, plain, Labels(), CrossEntropy(), Plan(1, 1e-3))
    assert record.loss == expected.loss
    assert record.kl is None
    for ours, theirs in zip(student.model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_both_kinds_of_rows_are_learned_in_one_step(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    teacher = FrozenTeacher(student.path)
    reply = Sample([5, 6, 7, 8, 9, 10], [False, False, True, True, True, True])
    states = Mixture(FixedRows([reply], rows=3), Documents([DOCUMENT], 0, window=16, rows=1, use_labels=True))
    records = list(train(student, states, TeacherSignal(teacher), Divergence(beta=0.0), Plan(30, 3e-3)))
    assert records[0].kl == pytest.approx(0, abs=1e-5)  # the teacher is the student: only the document is new
    assert records[-1].loss < 0.7 * records[0].loss


def test_tokens_that_the_teacher_lacks_are_no_targets(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    student.vocabulary = 44  # as if the teacher had no further ones
    documents = Documents([DOCUMENT], 0, window=16, rows=2, use_labels=True)
    for states, has_others in ((CommonTokens(documents, None), True), (CommonTokens(documents, 44), False)):
        targets = [
            t for s in states.draw(student, 0) for t, is_target in zip(s.tokens, s.targets, strict=True) if is_target
        ]
        assert (max(targets) >= 44) == has_others
        assert targets
    [record] = train(student, CommonTokens(documents, 44), Labels(), CrossEntropy(), Plan(1, 1e-3))
    assert record.loss > 0


def test_the_teacher_reads_no_label_rows(tmp_path: Path) -> None:
    rows = [Sample([1, 2, 3], [False, True, True], use_labels=use) for use in (False, True, False)]
    batches = list(micro_batches(rows, 100))
    assert [{s.use_labels for s in batch} for batch in batches] == [{False}, {True}]
    signal = TeacherSignal(FrozenTeacher(tiny_student(tmp_path).path))
    assert signal.flops(rows) == signal.flops([rows[0], rows[2]])


def test_without_the_mark_a_divergence_still_needs_a_teacher(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    with pytest.raises(RecoverError, match="needs a teacher"):
        next(train(student, Documents([DOCUMENT], 0, window=16, rows=1), Labels(), Divergence(), Plan(1, 1e-3)))
