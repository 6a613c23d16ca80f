"""A tiny model; a student and a teacher with other weights, both in float64 for exact comparisons."""

from pathlib import Path

import pytest
import torch

from recovery.models.students import Student, load_student
from recovery.teachers import FrozenTeacher
from tests.models import save_tiny


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(save_tiny(tmp_path / "base"))


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", seed=3)), dtype=torch.float64)


@pytest.fixture
def teacher(tmp_path: Path) -> FrozenTeacher:
    return FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)), dtype=torch.float64)
