from pathlib import Path

import pytest
import torch

from recovery.models.students import Student, load_student
from recovery.objectives import Divergence, Objective, SampledGradient
from recovery.samples import Batch, Sample
from recovery.signals import Labels, TeacherSignal
from recovery.teachers import FrozenTeacher, RouterTeacher
from recovery.telemetry import flops_of_step
from tests.gradients import gradient_of_step
from tests.models import save_tiny

DOMAINS = ["old", None, "old", "unknown", None]
ROWS = [
    Sample(
        list(range(5 + i, 12 + i + i % 3)),
        [False, False] + [True] * (5 + i % 3),
        logprobs=[-6.0] * (5 + i % 3),
        domain=domain,
    )
    for i, domain in enumerate(DOMAINS)
]
OLD, NEW = ([i for i, d in enumerate(DOMAINS) if (d == "old") is old] for old in (True, False))


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", seed=3)))


@pytest.fixture
def teachers(tmp_path: Path) -> tuple[FrozenTeacher, FrozenTeacher]:
    return tuple(FrozenTeacher(str(save_tiny(tmp_path / f"{seed}", seed=seed))) for seed in (0, 1))  # type: ignore[return-value]


@pytest.fixture
def router(teachers: tuple[FrozenTeacher, FrozenTeacher]) -> RouterTeacher:
    return RouterTeacher(teachers[0], {"old": teachers[1]})


def test_each_row_is_scored_by_its_own_teacher(
    router: RouterTeacher, teachers: tuple[FrozenTeacher, FrozenTeacher]
) -> None:
    batch = Batch.collate(ROWS, 0)
    routed, alone = router.distribution(batch), [teacher.distribution(batch) for teacher in teachers]
    old = torch.isin(batch.target_rows, torch.tensor(OLD))
    clean, later = (distribution.logprobs(slice(None)) for distribution in alone)
    chosen = torch.where(old[:, None], later, clean)
    torch.testing.assert_close(routed.logprobs(slice(None)), chosen)
    for part in (slice(0, 3), slice(3, 20), slice(20, None)):  # within one row's targets, across rows
        torch.testing.assert_close(routed.logprobs(part), chosen[part])
    some = torch.zeros(len(old), 3)
    torch.testing.assert_close(routed.compare(some, slice(None)), (some, chosen))


@pytest.mark.parametrize("objective", [Divergence(), Divergence(beta=0.5), SampledGradient(1e9)])
def test_the_gradient_combines_each_teacher_on_its_rows(
    objective: Objective, student: Student, router: RouterTeacher, teachers: tuple[FrozenTeacher, FrozenTeacher]
) -> None:
    mixed = gradient_of_step(student, ROWS, TeacherSignal(router), objective)
    total, summed = sum(row.target_count for row in ROWS), torch.zeros_like(mixed)
    for teacher, domain in ((teachers[1], OLD), (teachers[0], NEW)):
        rows = [ROWS[i] for i in domain]
        share = sum(row.target_count for row in rows) / total
        summed += share * gradient_of_step(student, rows, TeacherSignal(teacher), objective)
    assert mixed.norm() > 1e-4
    torch.testing.assert_close(mixed, summed, atol=1e-6, rtol=1e-4)


def test_each_teachers_pass_is_counted_once(
    student: Student, router: RouterTeacher, teachers: tuple[FrozenTeacher, FrozenTeacher]
) -> None:
    costs = [flops_of_step(student, TeacherSignal(t), ROWS, rolled_out=False) for t in (router, teachers[0])]
    assert costs[0] == costs[1]  # both teachers have one size
    assert costs[0] > flops_of_step(student, Labels(), ROWS, rolled_out=False)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("padding", [(20, 0, 10), (0, 20, 10), (20, 10, 0), (10, 10, 20), (20, 10, 10)])
def test_all_models_use_the_fewest_vocabulary_rows_in_any_order(
    tmp_path: Path, order: list[int], padding: tuple[int, int, int]
) -> None:
    folders = [str(save_tiny(tmp_path / str(i), seed=i, padding=rows)) for i, rows in enumerate(padding)]
    student, pair = load_student(folders[0]), [FrozenTeacher(folder) for folder in folders[1:]]
    for i in order:
        pair[i].bind_student(student)
    router, fewest = RouterTeacher(pair[0], {"old": pair[1]}), 259 + min(padding)
    assert student.head.weight.shape[0] == fewest
    assert router.distribution(Batch.collate(ROWS, 0)).logprobs(slice(None)).shape[-1] == fewest
    assert gradient_of_step(student, ROWS, TeacherSignal(router), Divergence()).isfinite().all()
