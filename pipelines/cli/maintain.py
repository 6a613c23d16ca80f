"""Commands that maintain a project: init, cancel, gc, db upgrade (doctor has a module of its own)."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import CommandResult, command_result, main
from pipelines.cli import shared_options as options
from pipelines.log import log

if TYPE_CHECKING:
    from db.tables import Run
    from pipelines.project.project import Project


@main.command()
@options.of_request("base")
@click.option("--db", metavar="URL", help="The database, such as postgresql://… [default: SQLite in .recover]")
@command_result
def init(project: Path | None, base: str | None, db: str | None) -> CommandResult:
    """Create a project: recover.toml and .recover/.

    Other commands create a project too, when they first need one.

    \b
    Example: recover init --base Qwen/Qwen3-8B
    """
    from pipelines.project.base import describe_base
    from pipelines.project.maintenance import initialise

    opened = initialise(project or Path.cwd(), base, db)
    data = {"project": str(opened.root), "base": opened.base, "record": opened.database_label}
    lines = [f"project  {opened.root}", f"base     {describe_base(opened.base)}", "next: recover cycle --docs DIR"]
    return CommandResult(data, lines)


@main.command()
@click.argument("run", type=click.IntRange(min=1), required=False)
@command_result
def cancel(project: Path | None, run: int | None) -> CommandResult:
    """Stop a run, or discard an interrupted command.

    A running training is saved and stops after its step; `recover resume` continues it. Without RUN, this is the run
    of the running command. If no command is running, or RUN is not active, the interrupted command is discarded: it
    cannot be resumed, and its results stay stored.

    \b
    Examples: recover cancel 12
              recover cancel
    """
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    opened = Project.open_existing(project)
    target = opened.run(run) if run is not None else _current_run(opened)
    if target is None or target.status != "running" or target.stale:
        return _discard_job(opened, target)
    run = target.id
    if target.kind == "eval":
        raise RecoverError(f"Run {run} is an evaluation, which cannot be saved half-way. Stop its process with Ctrl-C.")
    opened.tracker.request_cancel(run)
    return CommandResult({"run": run, "cancelling": True}, [f"Run {run} will stop after its current step"])


def _current_run(project: "Project") -> "Run | None":
    """The run that the running command is in, if there is one."""
    from pipelines.project.lock import running_command
    from pipelines.project.runs import runs_of_job

    holder = running_command(project)
    if holder is None:
        return None
    process = (holder.host, holder.pid)  # a run of a killed process may still be recorded as running
    runs = runs_of_job(project, holder.job) if holder.job else project.reader.runs(project.id)
    return next((run for run in runs if run.status == "running" and (run.host, run.pid) == process), None)


def _discard_job(project: "Project", run: "Run | None") -> CommandResult:
    """Discard the latest unfinished job, or that of a run."""
    from pipelines.jobs.job import unfinished_jobs
    from pipelines.project.lock import command_lock
    from pipelines.project.runs import runs_of_job
    from recovery.errors import RecoverError

    with command_lock(project):
        jobs = [job for job in unfinished_jobs(project.home) if run is None or job.id == run.inputs.job]
        if not jobs:
            status = "stale" if run and run.stale else run and run.status
            problem = f"Run {run.id} is not active: it is {status}." if run else "No command was interrupted here."
            raise RecoverError(f"{problem} There is nothing to cancel. List the runs with `recover runs`.")
        job = jobs[-1]
        for job_run in runs_of_job(project, job.id):
            if job_run.resumable:
                project.tracker.give_up(job_run.id)
        job.delete(project.home)
    data = {"run": run.id if run else None, "cancelling": False, "given_up": job.command}
    return CommandResult(data, [f"Discarded `recover {job.command}`; its results so far stay stored"])


@main.command()
@click.option("--rejected", is_flag=True, help="Also delete the weights of rejected and mid-trained checkpoints.")
@options.dry_run
@command_result
def gc(project: Path | None, rejected: bool, dry_run: bool) -> CommandResult:
    """Delete files that nothing refers to.

    These are incomplete files, saved progress of ended runs, and folders that are not in the database.

    \b
    Example: recover gc --rejected --dry-run
    """
    from pipelines.jobs.job import unfinished_jobs
    from pipelines.project.lock import command_lock
    from pipelines.project.maintenance import collect_garbage
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    with command_lock(opened):
        jobs = {job.id: job.checkpoints for job in unfinished_jobs(opened.home)}
        freed = collect_garbage(opened, jobs, rejected=rejected, dry_run=dry_run)
    for path, size in freed:
        log.info(f"{'Would delete' if dry_run else 'Deleted'} {path} ({size / 1e6:.1f} MB)")
    total = sum(size for _, size in freed)
    data = {"freed": [str(path) for path, _ in freed], "bytes": total, "dry_run": dry_run}
    return CommandResult(data, [f"{total / 1e6:.1f} MB {'would be' if dry_run else 'were'} freed"])


@main.group()
def db() -> None:
    """Manage the project's database.

    \b
    Example: recover db upgrade
    """


@db.command()
@command_result
def upgrade(project: Path | None) -> CommandResult:
    """Upgrade the database of an earlier release.

    Other commands do this too, when they open the database.

    \b
    Example: recover db upgrade
    """
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    data = {"record": opened.database_label, "projects": len(opened.reader.projects())}
    return CommandResult(data, ["The database is up to date"])
