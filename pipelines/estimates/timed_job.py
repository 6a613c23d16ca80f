"""A job with a clock: its estimate is logged before it begins, progress is published, and the end is compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from db.column_types import now
from db.time_left import DONE, TOTAL
from pipelines.estimates.estimate import try_estimate
from pipelines.jobs.job import Job
from pipelines.log import log
from pipelines.progress import duration
from pipelines.project.command_lock import show_progress
from pipelines.project.project import Project
from pipelines.project.runs import runs_of_job
from pipelines.silence import no_silence
from pipelines.stage_clock import Progress, StageClock
from recovery.progress import also_listen


@contextmanager
def timed_job(project: Project, job: Job, *, estimates: bool = True) -> Iterator[StageClock]:
    """Give the project a clock while the job runs."""
    with no_silence(lambda: project.clock.describe()):
        clock = project.clock = _estimated_clock(project, job) if estimates else StageClock()
        try:
            with also_listen(clock.listener):
                yield clock
        finally:
            project.clock = StageClock()


def _estimated_clock(project: Project, job: Job) -> StageClock:
    is_midtraining = job.corpus is not None and job.command != "distill"
    estimate = try_estimate(project, job, job.corpus.texts if job.corpus and is_midtraining else None)
    if estimate is None:
        return StageClock()
    for line in filter(None, (str(estimate), estimate.shorten)):
        log.info(line)
    return StageClock(estimate.stages, partial(_publish, project), estimate.store_time)


def compare_with_estimate(project: Project, job: Job, clock: StageClock) -> dict[str, Any] | None:
    """Log the estimate beside what was seen, and store that with the job's last run."""
    summary = clock.summary()
    if summary is None or not clock.took:
        return summary
    text = f"Estimated {duration(summary['seconds'])}, took {duration(summary['took'])}"
    log.info(f"{text}: {', '.join(_compared(stage) for stage in summary['stages'])}")
    runs = runs_of_job(project, job.id)
    if runs:
        project.tracker.event(max(run.id for run in runs), text)
        project.tracker.flush()  # the run has ended already, and nothing else would write it
    return summary


def _compared(stage: dict[str, Any]) -> str:
    if not stage["took"]:
        return f"{stage['stage']} {duration(stage['seconds'])} (not needed)"
    early = "" if stage["complete"] else ", ended early"
    return f"{stage['stage']} {duration(stage['seconds'])} ({duration(stage['took'])}{early})"


def _publish(project: Project, progress: Progress, run: int | None) -> None:
    ends_at = now() + timedelta(seconds=progress.seconds_left)
    values = {"stage": progress.stage, "units": progress.units, "done": progress.done, "total": progress.total}
    show_progress(project, values | {"ends_at": ends_at.isoformat(timespec="seconds")})
    if run is not None and progress.total:
        project.tracker.step(run, 0, {DONE: progress.done, TOTAL: progress.total})
