"""A few of the student's rollouts, recorded for people to read, with every token's distance from the teacher."""

from collections.abc import Callable
from dataclasses import astuple

from db.tracker import Tracker
from recovery.models.students import Student
from recovery.samples import Sample
from recovery.states import States
from recovery.telemetry import TokenReport

Report = Callable[[list[Sample]], list[list[TokenReport]] | None]  # None without a teacher

ROLLOUTS_A_STEP = 4  # recorded of about ten steps in a run


class RecordedStates:
    """States that keep their last draw."""

    def __init__(self, states: States):
        self.states = states
        self.last: list[Sample] = []

    def draw(self, student: Student, step: int) -> list[Sample]:
        self.last = self.states.draw(student, step)
        return self.last


def record_rollouts(
    tracker: Tracker, run: int, step: int, student: Student, report: Report, samples: list[Sample]
) -> None:
    """Record the first rollouts among the samples; documents are not recorded."""
    rows = [row for row in samples if row.prompt is not None and row.logprobs is not None][:ROLLOUTS_A_STEP]
    if not rows:
        return
    reports = report(rows)
    tracker.rollouts(
        run,
        step,
        [
            {
                "prompt": row.prompt,
                "text": student.chat.text(row.tokens[len(row.tokens) - len(row.logprobs or []) :]),
                "truncated": row.truncated,
                "reward": row.reward,
                "tokens": [list(astuple(token)) for token in reports[i]] if reports else None,
            }
            for i, row in enumerate(rows)
        ],
    )
