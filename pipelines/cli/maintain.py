"""Commands that maintain a project and its machines: init, doctor, cancel, gc."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import ERROR, REJECTED, SUCCESS, CommandResult, command_result, in_project, main, options
from pipelines.log import log
from recovery.errors import RecoverError

if TYPE_CHECKING:
    from db.tables import Run
    from pipelines.project.project import Project


@main.command()
@options.of_request("base")
@click.option("--db", metavar="URL", help="The database, such as postgresql://… [default: SQLite in .recover]")
@partial(command_result, project=options.project_in("the working directory"))
def init(project: Path | None, base: str | None, db: str | None) -> CommandResult:
    """Create a project in this folder: recover.toml and .recover/.

    Other commands create a project too, when they first need one.

    \b
    Example: recover init --base Qwen/Qwen3-8B
    """
    from pipelines.project.locations import describe_base
    from pipelines.project.maintenance import initialise

    opened = initialise(project or Path.cwd(), base, db)
    data = {"project": str(opened.root), "base": opened.base, "record": opened.database_label}
    lines = [f"project  {opened.root}", f"base     {describe_base(opened.base)}", "next: recover cycle --docs DIR"]
    return CommandResult(data, lines)


@main.command()
@click.argument("run", type=click.IntRange(1, 999_999_999), required=False)
@command_result
@in_project
def cancel(project: "Project", run: int | None) -> CommandResult:
    """Stop a run, or discard an interrupted command.

    A running training is saved and stops after its step; `recover resume` continues it. Without RUN, this is the run
    of the running command. If no command is running, or RUN is not active, the interrupted command is discarded: it
    cannot be resumed, and its results stay stored. A RUN whose process was killed is marked as ended.

    \b
    Examples: recover cancel 12
              recover cancel
    """
    from pipelines.project.lock import current_run, mark_ended

    target = mark_ended(project, [project.run(run)])[0] if run is not None else current_run(project)
    if target is None or target.status != "running" or target.stale:
        return _discard_job(project, target)
    run = target.id
    if target.kind == "eval":
        raise RecoverError(f"Run {run} is an evaluation, which cannot be saved half-way. Stop its process with Ctrl-C.")
    project.tracker.request_cancel(run)
    return CommandResult({"run": run, "cancelling": True}, [f"Run {run} will stop after its current step"])


def _discard_job(project: "Project", run: "Run | None") -> CommandResult:
    """Discard the latest unfinished job, or that of a run."""
    from pipelines.job import unfinished_jobs
    from pipelines.project.lock import command_lock
    from pipelines.project.runs import is_of_command, runs_of_command

    with command_lock(project):
        jobs = [job for job in unfinished_jobs(project.home) if run is None or is_of_command(run, job.id)]
        if not jobs and run and run.stale:  # such as a measurement, which has no job
            project.tracker.give_up(run.id)
            return CommandResult({"run": run.id, "cancelling": False}, [f"Run {run.id} is marked as ended"])
        if not jobs:
            problem = f"Run {run.id} is not active: it is {run.status}." if run else "No command was interrupted here."
            raise RecoverError(f"{problem} There is nothing to cancel. List the runs with `recover runs`.")
        job = jobs[-1]
        runs = runs_of_command(project, job.id)
        for job_run in runs:
            if job_run.resumable:
                project.tracker.give_up(job_run.id)
        _reject_again(project, {job_run.id for job_run in runs})
        job.delete(project.home, project.reader.runs(project.id))
        if not list(unfinished_jobs(project.home)):  # a cycle may be that of any of them
            project.tracker.delete_empty_cycles(project.id)
    data = {"run": run.id if run else None, "cancelling": False, "given_up": job.command}
    return CommandResult(data, [f"Discarded `recover {job.command}`; its results so far stay stored"])


def _reject_again(project: "Project", runs: set[int]) -> None:
    """Reject the attempt of these runs that has opened a rejected cycle again, and that the gate has not judged."""
    from pipelines.gate.promotion import current_user

    decided = {promotion.cycle for promotion in project.reader.promotions(project.id)}
    for cycle in project.reader.cycles(project.id):
        attempt = cycle.recovered.checkpoint
        if cycle.status == "open" and cycle.number in decided and attempt and attempt.run_id in runs:
            why = "discarded before its verdict"
            project.tracker.promote(project.id, cycle.id, attempt.id, "rejected", current_user(), why)


@main.command()
@click.option("--rejected", is_flag=True, help="Also delete the weights of rejected and mid-trained checkpoints.")
@options.dry_run
@command_result
@in_project
def gc(project: "Project", rejected: bool, dry_run: bool) -> CommandResult:
    """Delete files that nothing refers to.

    These are incomplete files, saved progress of ended runs, and folders that are not in the database.

    \b
    Example: recover gc --rejected --dry-run
    """
    from pipelines.job import unfinished_jobs
    from pipelines.project.lock import command_lock
    from pipelines.project.maintenance import collect_garbage

    with command_lock(project):
        jobs = {job.id: job.checkpoints for job in unfinished_jobs(project.home)}
        freed = collect_garbage(project, jobs, rejected=rejected, dry_run=dry_run)
    for path, size in freed:
        log.info(f"{'Would delete' if dry_run else 'Deleted'} {path} ({size / 1e6:.1f} MB)")
    total = sum(size for _, size in freed)
    data = {"freed": [str(path) for path, _ in freed], "bytes": total, "dry_run": dry_run}
    return CommandResult(data, [f"{total / 1e6:.1f} MB {'would be' if dry_run else 'were'} freed"])


@main.command()
@click.option(
    "--model", metavar="REF", help="Check a model instead: how it ends a turn, and why its replies may run on."
)
@click.option("--base", metavar="REF", help="The model that it was trained from, which is shown beside it.")
@command_result
def doctor(project: Path | None, model: str | None, base: str | None) -> CommandResult:
    """Check what this machine has for training, and how to fix gaps.

    With --model, check how a model ends its turns. Exits with 3 if it has a fault that makes replies run on.

    \b
    Example: recover doctor
    Example: recover doctor --model ./my-finetune --base Qwen/Qwen3-8B
    """
    if model is not None:
        return _examine_model(project, model, base)
    if base is not None:
        raise click.UsageError("--base belongs to --model. Name the model to check.")
    from pipelines.doctor import examine

    findings = examine(project)
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{'ok' if finding.ok else 'missing':<8} {finding.name:<{width}}  {finding.detail}")
        if not finding.ok:
            lines += [f"{'':<{width + 11}}impact: {finding.impact}", f"{'':<{width + 11}}fix:    {finding.fix}"]
    required = [finding.name for finding in findings if finding.required and not finding.ok]
    lines.append(f"Training cannot run here: {', '.join(required)}" if required else "Training can run here")
    data = {"can_run": not required, "checks": [finding.as_dict() for finding in findings]}
    return CommandResult(data, lines, ERROR if required else SUCCESS)


def _examine_model(project: Path | None, model: str, base: str | None) -> CommandResult:
    from pipelines.project.project import Project, model_path
    from pipelines.turn_ends import examine_turn_ends

    opened = Project.open(project, base)
    path = model_path(model) if Path(model).is_dir() else opened.path_of(model)
    clean = opened.base if base is not None or not opened.base_is_default else None
    ends = examine_turn_ends(path, clean)
    command = shlex.join([model, *(["--base", base] if base else [])])
    further = [f"next: recover {'repair' if ends.fault else 'check'} {command}"] if ends.base_does else []
    return CommandResult(ends.as_json(), [*ends.lines(), *further], REJECTED if ends.faults else SUCCESS)
