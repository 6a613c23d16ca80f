"""Runs whose process is gone, and the working time of interrupted runs."""

import random
from datetime import timedelta

import pytest
from sqlalchemy import Engine, update

from db.column_types import now
from db.queries import Reader
from db.tables import Run
from db.tracker import Tracker
from tests.db.seeded import measure


def test_a_run_that_becomes_stale_is_a_change(engine: Engine, reader: Reader, tracker: Tracker, project: int) -> None:
    other = tracker.start_run(tracker.project("other", "/other", "lab"), "distill")
    run = tracker.start_run(project, "distill")
    before = reader.changes(project)
    with engine.begin() as connection:
        connection.execute(update(Run).where(Run.id == other).values(heartbeat_at=now() - timedelta(minutes=5)))
    assert reader.changes(project) == before, "another project's run"
    with engine.begin() as connection:
        connection.execute(update(Run).where(Run.id == run).values(heartbeat_at=now() - timedelta(minutes=5)))
    stale = reader.changes(project)
    assert stale != before
    assert reader.changes(project) == stale
    tracker.step(run, 0, {"loss": 1.0})
    tracker.flush()
    assert reader.changes(project) == before, "the run was only slow"


def test_busy_seconds_are_those_of_steps_and_evaluations(reader: Reader, tracker: Tracker, project: int) -> None:
    run, idle = tracker.start_run(project, "midtrain"), tracker.start_run(project, "midtrain")
    for step in range(2):
        tracker.step(run, step, {"loss": 9.0, "rollout_seconds": 0.5, "teacher_seconds": 0.25, "update_seconds": 1.0})
    base = tracker.checkpoint(project, "base", "/models/lab")
    measure(tracker, base, run, {"behaviour": 0.5, "knowledge": 0.5}, random.Random(0))
    tracker.flush()
    assert reader.busy_seconds([run, idle]) == {run: pytest.approx(2 * 1.75 + 2 * 3.1)}
    assert reader.busy_seconds([]) == {}
