"""Runs in the record: each is started, resumed and ended together with the work it stands for."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from db.errors import RecordError
from db.run_inputs import RunInputs
from db.tracker import RunKind
from db.views import Run
from pipelines.project.project import Project


def runs_of_job(project: Project, job: str) -> list[Run]:
    return [run for run in project.reader.runs(project.id) if run.inputs.job == job]


def run_of_stage(project: Project, job: str, stage: str) -> Run | None:
    return next((run for run in runs_of_job(project, job) if run.inputs.stage == stage), None)


@contextmanager
def recorded_run(
    project: Project,
    kind: RunKind,
    cycle: int | None,
    settings: dict[str, Any],
    seed: int,
    inputs: RunInputs = RunInputs(),  # noqa: B008
    steps: int | None = None,
) -> Iterator[int]:
    """Yield the run's id; the run ends as done, failed or interrupted, as the block does.

    A job that is resumed goes on with the run it has for that stage. A run that is done stays as it is: the block
    finds its results."""
    tracker, clock = project.tracker, project.clock
    started = run_of_stage(project, inputs.job, inputs.stage or "") if inputs.job else None
    if started is not None and started.status == "done":
        yield started.id
        return
    if started is not None:
        run = started.id
        tracker.resume_run(run)
    else:
        inputs = replace(inputs, estimate=clock.stage_estimate())
        run = tracker.start_run(project.id, kind, cycle, settings, seed, steps, inputs)
    clock.run = run if kind == "eval" else None  # a training reports its steps itself
    try:
        yield run
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        reason = str(error) or (None if interrupted else type(error).__name__)
        with suppress(RecordError):  # the first error matters more; a run that stays silent is recognised as ended
            tracker.finish_run(run, "interrupted" if interrupted else "failed", reason)
        raise
    finally:
        clock.run = None
    tracker.finish_run(run, "done")
