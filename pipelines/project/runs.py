"""A run on record from start to end, however it ends; the same run again when its job is picked up."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from db.errors import RecordError
from db.views import Run
from pipelines.job import Job
from pipelines.project.project import Project


def runs_of(project: Project, job: Job) -> list[Run]:
    return [run for run in project.reader.runs(project.id) if run.settings.get("job") == job.id]


def run_of(project: Project, job: Job, stage: str) -> Run | None:
    return next((run for run in runs_of(project, job) if run.settings.get("stage") == stage), None)


@contextmanager
def recorded_run(
    project: Project,
    kind: Any,
    cycle: int | None,
    settings: dict[str, Any],
    seed: int,
    job: Job | None = None,
    stage: str = "",
    steps: int | None = None,
) -> Iterator[int]:
    tracker, known = project.tracker, run_of(project, job, stage) if job else None
    if known is not None:
        run = known.id
        tracker.resume_run(run)
    else:
        told = settings | ({"job": job.id, "stage": stage} if job else {})
        run = tracker.start_run(project.id, kind, cycle, told, seed, steps)
    try:
        yield run
    except BaseException as error:
        ended: Any = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with suppress(RecordError):  # what ended the run matters more; it is found to be over by its silence
            tracker.finish_run(run, ended, str(error) or type(error).__name__)
        raise
    tracker.finish_run(run, "done")
