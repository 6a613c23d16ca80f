"""Rows that learn their labels beside rows that learn from a teacher: the documents, read again in a distillation."""

from pathlib import Path

import pytest
import torch

from recovery.errors import RecoverError
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.samples import Sample, micro_batches
from recovery.signals import Labels, TeacherSignal
from recovery.states import CommonTokens, Documents, FixedRows, Mixture
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train
from tests.models import tiny_student

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
