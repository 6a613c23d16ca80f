"""Which rollouts of a step are recorded, and what of them."""

from functools import partial
from pathlib import Path
from typing import Any

from pipelines.training.training_run import ROLLOUTS_A_STEP, RecordedStates, record_rollouts
from recovery.samples import Sample
from recovery.teachers import FrozenTeacher
from recovery.telemetry import report_tokens
from tests.models import save_tiny, tiny_student


class FakeTracker:
    def __init__(self) -> None:
        self.recorded: list[dict[str, Any]] = []

    def rollouts(self, run: int, step: int, rollouts: list[dict[str, Any]]) -> None:
        self.recorded += rollouts


class FixedStates:
    def draw(self, student: Any, step: int) -> list[Sample]:
        return [document(), *(rollout(i) for i in range(step))]


def rollout(number: int) -> Sample:
    tokens = [1, 40 + number, 50, 60]
    return Sample(tokens, [False, False, True, True], [-1.0, -2.0], prompt=f"Prompt {number}", truncated=number == 1)


def document() -> Sample:
    return Sample([1, 2, 3], [False, True, True])


def test_the_first_rollouts_of_the_last_draw_are_recorded_without_documents(tmp_path: Path) -> None:
    student, tracker = tiny_student(tmp_path / "student"), FakeTracker()
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)))
    teacher.bind_student(student)
    states = RecordedStates(FixedStates())
    assert states.draw(student, ROLLOUTS_A_STEP + 2) == states.last
    database: Any = tracker
    report = partial(report_tokens, student, teacher)
    record_rollouts(database, 1, 0, student, report, states.last)
    assert [row["prompt"] for row in tracker.recorded] == [f"Prompt {i}" for i in range(ROLLOUTS_A_STEP)]
    assert [row["truncated"] for row in tracker.recorded] == [False, True, False, False]
    first = tracker.recorded[0]
    assert first["text"] == student.chat.text([50, 60])
    assert [len(token) for token in first["tokens"]] == [4, 4]  # text, KL, and the likeliest tokens of both models
    record_rollouts(database, 1, 1, student, report, [document()])
    assert len(tracker.recorded) == ROLLOUTS_A_STEP


def test_without_a_teacher_no_distances_are_recorded(tmp_path: Path) -> None:
    tracker: Any = FakeTracker()
    record_rollouts(tracker, 1, 0, tiny_student(tmp_path / "student"), lambda rows: None, [rollout(0)])
    assert [row["tokens"] for row in tracker.recorded] == [None]
