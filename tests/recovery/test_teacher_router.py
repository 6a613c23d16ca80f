"""The router scores each sample with the teacher of its domain only."""

from pathlib import Path

import pytest
import torch

from recovery.models.students import Student, load_student
from recovery.objectives import Divergence, Objective, SampledGradient
from recovery.samples import Batch, Sample
from recovery.signals import Labels, TeacherSignal
from recovery.teachers import FrozenTeacher, RouterTeacher, Teacher
from recovery.telemetry import flops_of_step
from recovery.train import Plan
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


@pytest.mark.parametrize("rows", [OLD, NEW])
def test_rows_of_one_domain_use_one_teacher_only(
    rows: list[int], router: RouterTeacher, teachers: tuple[FrozenTeacher, FrozenTeacher]
) -> None:
    batch = Batch.collate([ROWS[i] for i in rows], 0)
    own = teachers[rows == OLD].distribution(batch)
    assert torch.equal(router.distribution(batch).logprobs(slice(None)), own.logprobs(slice(None)))


@pytest.mark.parametrize("objective", [Divergence(), Divergence(beta=0.5), SampledGradient(1e9)])
def test_the_gradient_combines_each_teacher_on_its_rows(
    objective: Objective, student: Student, router: RouterTeacher, teachers: tuple[FrozenTeacher, FrozenTeacher]
) -> None:
    mixed = gradient(student, router, ROWS, objective)
    parts = [(teachers[1], OLD), (teachers[0], NEW)]
    total = sum(s.target_count for s in ROWS)
    apart = [
        (
            sum(ROWS[i].target_count for i in rows) / total,
            gradient(student, teacher, [ROWS[i] for i in rows], objective),
        )
        for teacher, rows in parts
    ]
    summed = sum(share * part for share, part in apart)
    assert mixed.norm() > 1e-4
    torch.testing.assert_close(mixed, summed, atol=1e-6, rtol=1e-4)


def gradient(student: Student, teacher: Teacher, rows: list[Sample], objective: Objective) -> torch.Tensor:
    return gradient_of_step(student, rows, TeacherSignal(teacher), objective, Plan(1, 0.0, clip_norm=1e9))


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
    assert gradient(student, router, ROWS, Divergence()).isfinite().all()
