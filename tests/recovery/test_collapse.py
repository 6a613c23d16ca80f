"""A distillation whose KL falls while its rollouts run into loops: the watch must end it, whatever the KL says."""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recovery.collapse import CleanReplies, CollapseWatch
from recovery.engines import Generation
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from recovery.objectives import CrossEntropy, Divergence
from recovery.signals import Labels, TeacherSignal
from recovery.states import FixedRows, Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.telemetry import StepRecord
from recovery.train import Plan, train
from tests.step_records import step_record

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


def _looping_teacher(prompts: list[Prompt], folder: Path) -> FrozenTeacher:
    """The base after training on replies that repeat one phrase."""
    student = load_student(str(BASE))
    phrase = student.chat.tokenizer("that is a page ", add_special_tokens=False)["input_ids"]
    rows = [prompt.with_reply((phrase * 100)[:64]) for prompt in prompts]
    for _ in train(student, FixedRows(rows, rows=6), Labels(), CrossEntropy(), Plan(12, 2e-3)):
        pass
    save_student(student, folder / "looping", {})
    return FrozenTeacher(str(folder / "looping"))


CLEAN = CleanReplies(64, truncated=0.62, repetition=0.1, entropy=3.1)
DAMAGED = {"kl": 4.7, "entropy": 0.5, "truncated": 0.0, "repetition": 0.02}
RECOVERED = {"kl": 0.4, "entropy": 3.1, "truncated": 0.62, "repetition": 0.1}


def first_sign(watch: CollapseWatch, to: dict[str, float], *, rollouts: int = 16, steps: int = 100) -> tuple[int, str]:
    """Move from the damaged model to another within eight steps, and stay there; the first sign and its step."""
    for step, values in enumerate(_moving(to, rollouts, steps)):
        if reason := watch.after_step(step_record(step, **values)):
            return step, reason
    return -1, ""


def _moving(to: dict[str, float], rollouts: int, steps: int) -> Iterator[dict[str, Any]]:
    rng = Random(rollouts)
    for step in range(steps):
        share = min(1.0, step / 8)
        values = {name: (1 - share) * DAMAGED[name] + share * to[name] for name in DAMAGED}
        cut = sum(rng.random() < values["truncated"] for _ in range(rollouts))  # as rollouts vary by chance
        yield {**values, "truncated": cut / rollouts, "rollouts": rollouts}


@pytest.mark.parametrize("rollouts", [4, 7, 16, 64])
def test_a_run_that_becomes_as_the_clean_model_raises_no_alarm(rollouts: int) -> None:
    assert first_sign(CollapseWatch(CLEAN), RECOVERED, rollouts=rollouts) == (-1, "")


@pytest.mark.parametrize("rollouts", [7, 16, 64])
@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("truncated", 1.0, "most rollouts no longer end"),
        ("repetition", 0.9, "the rollouts repeat themselves"),
        ("entropy", 6.0, "the student's entropy doubled"),  # the KL falls
    ],
)
def test_a_run_that_goes_beyond_the_clean_model_does(rollouts: int, metric: str, value: float, reason: str) -> None:
    step, sign = first_sign(CollapseWatch(CLEAN), RECOVERED | {metric: value}, rollouts=rollouts)
    assert 4 < step < 18
    assert sign.startswith(f"{reason} (")
    assert sign.endswith(f", of the clean model {getattr(CLEAN, metric):.2f})")


def test_a_student_that_begins_beyond_the_clean_model_and_stays_there_does_not() -> None:
    watch, values = CollapseWatch(CLEAN), {"kl": 1.0, "entropy": 5.0, "truncated": 0.95, "repetition": 0.5}
    assert not any(watch.after_step(step_record(i, rollouts=64, **values)) for i in range(30))


def test_a_kl_that_doubles_is_compared_with_the_first_steps_alone() -> None:
    step, sign = first_sign(CollapseWatch(CLEAN), RECOVERED | {"kl": 30.0})
    assert step > 4
    assert sign == "the KL to the teacher doubled instead of falling"


def test_rollouts_count_once_however_many_epochs_they_are_trained_for() -> None:
    watch = CollapseWatch(CLEAN)
    for step in range(8):
        values = RECOVERED | {"rollouts": 16, "rollout_seconds": 0.0 if step % 4 else 2.0}
        assert not watch.after_step(step_record(step, **values))
    assert len(watch.history["truncated"]) == len(watch.history["rollouts"]) == 2
    assert len(watch.history["kl"]) == 8


def test_a_step_without_finite_numbers_does_not_silence_the_alarm() -> None:
    """Such a step is skipped by the training; a mean with its KL would be no number in all later steps."""
    watch = CollapseWatch(CLEAN)
    assert not watch.after_step(step_record(0, **DAMAGED | {"kl": math.nan, "entropy": math.nan}))
    assert first_sign(watch, RECOVERED | {"kl": 30.0})[1] == "the KL to the teacher doubled instead of falling"


def test_without_a_clean_model_the_same_recovery_cannot_be_told_from_a_collapse() -> None:
    assert first_sign(CollapseWatch(), RECOVERED)[1] == "most rollouts no longer end"


def test_without_a_clean_model_an_entropy_is_a_sign_only_where_the_kl_does_not_fall() -> None:
    rising = [0.4 + 0.2 * i for i in range(14)]
    nearing, moving = CollapseWatch(), CollapseWatch()
    assert not any(nearing.after_step(step_record(i, kl=4.0 - 0.2 * i, entropy=e)) for i, e in enumerate(rising))
    reasons = [moving.after_step(step_record(i, kl=0.4, entropy=e)) for i, e in enumerate(rising)]
    assert "the student's entropy doubled" in reasons


def test_the_clean_model_is_described_by_its_sampled_replies() -> None:
    ended, cut = Generation([1, 2], [-1.0, -3.0], True), Generation([5] * 20, [-0.1] * 20, False)
    clean = CleanReplies.of([ended, cut])
    assert (clean.count, clean.truncated) == (2, 0.5)
    assert clean.repetition == pytest.approx(0.5 * 12 / 13)
    assert clean.entropy == pytest.approx(6 / 22)
