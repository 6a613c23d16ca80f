"""Self-teachers: the student as it is, and the average of its weights, which is saved with a run."""

from pathlib import Path

import pytest
import torch

from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.objectives import Divergence
from recovery.resume_state import load_progress, save_progress
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import EmaTeacher, FrozenTeacher, LiveTeacher
from recovery.train import Plan, TrainState, train
from tests.gradients import gradient_of_step
from tests.models import save_tiny
from tests.recovery.test_teachers_in_context import ROWS


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", seed=3)), dtype=torch.float64)


@pytest.mark.parametrize("adapter", [None, Adapter(rank=3)])
def test_the_average_moves_by_its_share_and_shares_what_is_not_trained(tmp_path: Path, adapter: Adapter | None) -> None:
    student = load_student(str(save_tiny(tmp_path)), adapter=adapter)
    teacher = EmaTeacher(student, decay=0.9)
    before = [p.detach().clone() for p in student.trainable()]
    with torch.no_grad():
        for p in student.trainable():
            p.add_(1.0)
    teacher.move()
    averages = list(teacher._weights().values())
    assert len(averages) == len(before)
    for average, start in zip(averages, before, strict=True):
        torch.testing.assert_close(average, start + 0.1)
        assert not average.requires_grad
    frozen = {id(p) for p in student.model.parameters() if not p.requires_grad}
    assert {id(p) for p in teacher._average.model.parameters()} >= frozen


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", [LiveTeacher, EmaTeacher])
def test_a_self_teacher_leaves_the_students_gradient_intact(tmp_path: Path, kind: type, bf16: bool) -> None:
    """A self-teacher that has not moved is a frozen copy of the student."""
    folder = str(save_tiny(tmp_path, seed=4))
    gradients = []
    for own in (True, False):
        student = load_student(folder)
        signal = TeacherSignal(kind(student) if own else FrozenTeacher(folder))
        plan = Plan(1, 0.0, bf16=bf16, tokens_at_once=40)
        gradients.append(gradient_of_step(student, ROWS, signal, Divergence(), plan))
    assert gradients[0].norm() > 1e-3
    assert torch.equal(*gradients)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_with_an_average_ends_with_the_same_bits(tmp_path: Path, stop: int) -> None:
    plan = Plan(6, 1e-2, warmup=2, decay="cosine")

    def start() -> tuple[Student, Rollouts, EmaTeacher, TrainState]:
        student = load_student(str(save_tiny(tmp_path / "student", seed=1)))
        prompts = [Prompt(f"{i}", student.chat.prompt(f"say {i}"), None, [5 + i] * 9) for i in range(6)]
        states = Rollouts(prompts, TransformersEngine(student), rows=6, max_new_tokens=6)
        return student, states, EmaTeacher(student, 0.5), TrainState.start(student, plan)

    def run(student: Student, states: Rollouts, teacher: EmaTeacher, state: TrainState, last: int) -> None:
        for record in train(student, states, TeacherSignal(teacher), Divergence(), plan, state):
            teacher.move()
            save_progress(tmp_path / "progress", student, state, average=teacher)
            if record.step == last:
                return

    whole, *rest = start()
    run(whole, *rest, last=5)
    run(*start(), last=stop)
    resumed, states, teacher, state = start()
    assert load_progress(tmp_path / "progress", resumed, state, teacher) is not None
    assert state.step == stop + 1
    run(resumed, states, teacher, state, last=5)
    ours, theirs = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(torch.equal(a, b) for a, b in zip(rest[1]._weights().values(), teacher._weights().values(), strict=True))


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_a_decay_outside_its_range_is_refused(student: Student, decay: float) -> None:
    with pytest.raises(RecoverError, match="at least 0 and below 1"):
        EmaTeacher(student, decay)
