"""Weights that are not trained are in bfloat16 where the training is, but for small models."""

from pathlib import Path

import pytest
import torch

from pipelines.model_loading import frozen_dtype, load_trained
from pipelines.training.stage_teachers import Teachers
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.adapters import Adapter
from recovery.models.students import Student
from recovery.objectives import CrossEntropy, Divergence
from recovery.samples import Sample
from recovery.signals import Labels, TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import AdapterOffTeacher, FrozenTeacher
from recovery.train import Plan, train
from tests.models import save_tiny
from tests.pipelines.training.test_stage_teachers import checkpoint

ROWS = [Sample([1, *range(3 + i, 40 + i), 2], [False] * 4 + [True] * 35) for i in range(4)]
ROUNDING = 1e-3  # nats between equal weights, where one model's states between its layers are in bfloat16


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that counts as large."""
    monkeypatch.setattr("pipelines.model_loading.SMALL_MODEL_PARAMETERS", 0)
    return str(save_tiny(tmp_path / "model"))


def dtypes(student: Student) -> dict[bool, set[torch.dtype]]:
    """By whether they are trained."""
    parameters = list(student.model.parameters())
    return {trained: {p.dtype for p in parameters if p.requires_grad == trained} for trained in (True, False)}


def first_kl(student: Student, teacher: FrozenTeacher | AdapterOffTeacher) -> float:
    record = next(
        train(student, FixedRows(ROWS, rows=4), TeacherSignal(teacher), Divergence(), Plan(2, 1e-3, bf16=True))
    )
    return float(record.metrics()["kl"])


def test_weights_below_an_adapter_are_halved_and_what_is_trained_is_not(large: str) -> None:
    assert dtypes(load_trained(large, Adapter(rank=2), bf16=True)) == {True: {torch.float32}, False: {torch.bfloat16}}
    assert dtypes(load_trained(large, None, bf16=True)) == {True: {torch.float32}, False: set()}
    assert dtypes(load_trained(large, Adapter(rank=2), bf16=False))[False] == {torch.float32}


def test_a_teacher_beside_the_student_is_halved_and_agrees_with_its_equal(large: str) -> None:
    student = load_trained(large, None, bf16=True)
    teacher = Teachers(checkpoint(large, "base")).load(student, bf16=True)
    assert isinstance(teacher, FrozenTeacher)
    assert dtypes(teacher.model)[False] == {torch.bfloat16}
    assert first_kl(student, teacher) == pytest.approx(0, abs=ROUNDING)


def test_the_base_below_a_new_adapter_is_its_exact_equal(large: str) -> None:
    student = load_trained(large, Adapter(rank=2), bf16=True)
    assert first_kl(student, AdapterOffTeacher(student)) == 0


def test_an_adapter_on_halved_weights_learns_and_writes(large: str) -> None:
    student = load_trained(large, Adapter(rank=2), bf16=True)
    losses = [
        record.loss
        for record in train(student, FixedRows(ROWS, rows=4), Labels(), CrossEntropy(), Plan(6, 1e-2, bf16=True))
    ]
    assert losses[-1] < losses[0]
    assert TransformersEngine(student).generate([ROWS[0].tokens], Sampling(4))[0].tokens


def test_small_models_stay_in_float32(tmp_path: Path) -> None:
    """They cost little, and what is measured on the lab stays exact."""
    small = str(save_tiny(tmp_path / "model"))
    assert frozen_dtype(small, True) == torch.float32
    assert dtypes(load_trained(small, Adapter(rank=2), bf16=True))[False] == {torch.float32}
