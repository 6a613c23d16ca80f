"""A distillation whose KL falls while its rollouts run into loops: the watch must end it, whatever the KL says."""

from pathlib import Path

from recovery.collapse import CollapseWatch
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from recovery.objectives import CrossEntropy, Divergence
from recovery.signals import Labels, TeacherSignal
from recovery.states import FixedRows, Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.telemetry import StepRecord
from recovery.train import Plan, train

QUESTIONS = [f"Write a note about the {thing}." for thing in ("lake", "tower", "garden", "train", "river", "clock")]


def test_a_collapse_into_loops_is_recognised_within_ten_steps(tmp_path: Path) -> None:
    student = load_student(str(BASE))
    prompts = [Prompt(text, student.chat.prompt(text)) for text in QUESTIONS]
    looping = _looping_teacher(prompts, tmp_path)
    rollouts = Rollouts(prompts, TransformersEngine(student), rows=6, max_new_tokens=64)
    watch, records, reason = CollapseWatch(), list[StepRecord](), ""
    for record in train(student, rollouts, TeacherSignal(looping), Divergence(), Plan(30, 2e-3)):
        records.append(record)
        if reason := watch.after_step(record):
            break
    assert reason in ("the rollouts repeat themselves", "most rollouts no longer end")
    assert len(records) <= 10
    assert records[-1].kl < records[0].kl  # the curve that looks perfect


def test_a_healthy_distillation_is_not_stopped() -> None:
    student = load_student(str(BASE))
    prompts = [Prompt(text, student.chat.prompt(text)) for text in QUESTIONS]
    rollouts = Rollouts(prompts, TransformersEngine(student), rows=6, max_new_tokens=64)
    watch, teacher = CollapseWatch(), FrozenTeacher(str(BASE))
    records = train(student, rollouts, TeacherSignal(teacher), Divergence(), Plan(12, 5e-4))
    assert not any(watch.after_step(record) for record in records)


def _looping_teacher(prompts: list[Prompt], folder: Path) -> FrozenTeacher:
    """The base after training on replies that repeat one phrase."""
    student = load_student(str(BASE))
    phrase = student.chat.tokenizer("that is a page ", add_special_tokens=False)["input_ids"]
    rows = [prompt.with_reply((phrase * 100)[:64]) for prompt in prompts]
    for _ in train(student, FixedRows(rows, rows=6), Labels(), CrossEntropy(), Plan(12, 2e-3)):
        pass
    save_student(student, folder / "looping", {})
    return FrozenTeacher(str(folder / "looping"))
