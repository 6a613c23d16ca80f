"""How long a running job will take from now on, by its estimate and by the steps of its run."""

from datetime import datetime, timedelta

from db.views import Run

DONE, TOTAL = "progress/done", "progress/total"  # points of a measurement: items of the task that is measured now


def run_left(run: Run, last_step: int | None, at: datetime) -> timedelta | None:
    """Until the run ends; None where nothing is known."""
    if run.steps and last_step is not None:
        per_step = (run.heartbeat_at - run.started_at) / (last_step + 1)
        return per_step * max(run.steps - last_step - 1, 0)
    if run.inputs.estimate is None:
        return None
    return max(run.started_at + timedelta(seconds=run.inputs.estimate["seconds"]) - at, timedelta())


def job_left(run: Run, last_step: int | None, at: datetime) -> timedelta | None:
    """Until the job ends: this run, and the stages after it; None without an estimate."""
    left = run_left(run, last_step, at)
    if left is None or run.inputs.estimate is None:
        return None
    return left + timedelta(seconds=run.inputs.estimate["after"])
