"""The time left of a run and of its job, from the record alone."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from db.column_types import now
from db.engine import open_database
from db.queries import Reader
from db.run_inputs import RunInputs
from db.time_left import job_left, run_left
from db.tracker import Tracker
from db.views import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    engine = open_database(tmp_path / "record.db")
    with Tracker(engine) as tracker:
        project = tracker.project("p", tmp_path, "base")
        id = tracker.start_run(project, "eval", inputs=RunInputs(estimate={"seconds": 60.0, "after": 100.0}))
        run = Reader(engine).run(id)
    assert run is not None
    return run


def after(run: Run, seconds: float) -> datetime:
    return run.started_at + timedelta(seconds=seconds)


def test_a_measurement_ends_when_it_was_estimated_to(run: Run) -> None:
    assert run.inputs.estimate == {"seconds": 60.0, "after": 100.0}
    assert run_left(run, None, after(run, 20)) == timedelta(seconds=40)
    assert job_left(run, None, after(run, 20)) == timedelta(seconds=140)
    assert job_left(run, None, after(run, 500)) == timedelta(seconds=100), "it takes longer than estimated"


def test_the_steps_of_a_training_say_how_long_it_takes(run: Run) -> None:
    training = replace(run, steps=10, heartbeat_at=after(run, 20))
    assert run_left(training, 3, after(run, 20)) == timedelta(seconds=30)
    assert job_left(training, 3, after(run, 20)) == timedelta(seconds=130)


def test_a_run_of_an_earlier_release_has_no_estimate(run: Run) -> None:
    old = replace(run, inputs=RunInputs())
    assert run_left(old, None, now()) is None
    assert job_left(replace(old, steps=10), 3, now()) is None
