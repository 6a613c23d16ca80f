"""The commands a person keeps a project with: init, promote, rollback, export, cancel, gc, db."""

from pathlib import Path

import click

from pipelines.cli import Answer, answers, main, options
from pipelines.log import log

why = click.option("--why", default="", help="For the record.")


@main.command()
@options.base
@click.option(
    "--db", metavar="URL", help="Where the record is kept, such as postgresql://… [default: SQLite in .recover]"
)
@answers
def init(project: Path | None, base: str | None, db: str | None) -> Answer:
    """Begin a project here: recover.toml and .recover/. The other commands do it, too, when they first need it.

    \b
    Example: recover init --base Qwen/Qwen3-8B
    """
    from pipelines.project.init import initialise

    opened = initialise(project or Path.cwd(), base, db)
    found = {"project": str(opened.root), "base": opened.base, "record": opened.database_label}
    return Answer(found, [f"project  {opened.root}", f"base     {opened.base}", "next: recover cycle --docs DIR"])


@main.command()
@click.argument("ref")
@click.option("--reject", is_flag=True, help="Turn it down instead.")
@why
@options.dry_run
@answers
def promote(project: Path | None, ref: str, reject: bool, why: str, dry_run: bool) -> Answer:
    """Make a checkpoint the current one, whatever the gate said: a person's decision, on record.

    \b
    Example: recover promote cycle:3 --why "read fifty answers, they are fine"
    """
    from db.tracker import Decision
    from pipelines.project.project import Project
    from pipelines.promotion import decide
    from recovery.models.students import load_chat, parameters_of

    opened = Project.open_existing(project)
    checkpoint = opened.resolve(ref)
    if checkpoint.role == "external":
        load_chat(checkpoint.path)
        parameters_of(checkpoint.path)  # what is no model is refused
    decision: Decision = "rejected" if reject else "promoted"
    if not dry_run:
        decide(opened, checkpoint, decision, why or "decided by a person")
    current = opened.current.reference
    return Answer(
        {"checkpoint": checkpoint.reference, "decision": decision, "current": current, "dry_run": dry_run},
        [f"{checkpoint.reference} {'would be ' if dry_run else ''}{decision}; current is {current}"],
    )


@main.command()
@why
@options.dry_run
@answers
def rollback(project: Path | None, why: str, dry_run: bool) -> Answer:
    """Go back to what was current before the last promotion.

    \b
    Example: recover rollback --why "it forgot the tables"
    """
    from pipelines.project.project import Project
    from pipelines.promotion import decide, previous_checkpoint

    opened = Project.open_existing(project)
    left, back = opened.current, previous_checkpoint(opened)
    if not dry_run:
        decide(opened, back, "promoted", why or f"rolled back from {left.reference}", closes_cycle=False)
    return Answer(
        {"from": left.reference, "current": back.reference, "dry_run": dry_run},
        [f"{'would go' if dry_run else 'went'} back from {left.reference} to {back.reference}"],
    )


@main.command()
@click.argument("ref", default="current")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), required=True, help="A folder to write.")
@click.option("--adapter", is_flag=True, help="The adapter by itself, not merged into its base.")
@answers
def export(project: Path | None, ref: str, to: Path, adapter: bool) -> Answer:
    """Write a checkpoint as anyone can load it: safetensors, tokenizer, and a model card with scores and lineage.

    \b
    Example: recover export current --to ./my-model
    """
    from pipelines.project.export import export_checkpoint
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    checkpoint = opened.resolve(ref)
    kind = export_checkpoint(opened, checkpoint, to, adapter=adapter)
    found = {"checkpoint": checkpoint.reference, "path": str(to.resolve()), "kind": kind}
    return Answer(found, [f"{checkpoint.reference} is in {to} ({kind} weights)"])


@main.command()
@click.argument("run", type=click.IntRange(min=1), required=False)
@answers
def cancel(project: Path | None, run: int | None) -> Answer:
    """Ask a training to save itself and end, so that `recover resume` can go on; without RUN, give up what was
    interrupted.

    \b
    Examples: recover cancel 12
              recover cancel
    """
    from pipelines.job import unfinished_jobs
    from pipelines.project.lock import command_line, project_lock
    from pipelines.project.project import Project
    from pipelines.project.runs import runs_of_job
    from recovery.errors import RecoverError

    opened = Project.open_existing(project)
    known = opened.run(run) if run is not None else None
    silent = {each.id for each in opened.reader.stale_runs(opened.id)}  # nobody is there to hear
    if known is not None and known.status == "running" and known.id not in silent:
        if known.kind == "eval":
            raise RecoverError(f"run {run} is a measurement, which is never half done; stop its process with Ctrl-C")
        opened.tracker.request_cancel(known.id)
        return Answer({"run": run, "cancelling": True}, [f"run {run} ends after the step it is in"])
    with project_lock(opened.home, command_line()):
        wanted = known.inputs.job if known else None
        waiting = [job for job in unfinished_jobs(opened.home) if known is None or job.id == wanted]
        if not waiting:
            how = "silent" if known and known.id in silent else known and known.status
            what = f"run {run} is not going on (it is {how})" if known else "nothing was interrupted here"
            raise RecoverError(f"{what}, so there is nothing to cancel; `recover runs` lists what was done")
        for each in runs_of_job(opened, waiting[-1].id):
            if each.waits:
                opened.tracker.give_up(each.id)
        waiting[-1].delete(opened.home)
    given_up = f"`recover {waiting[-1].command}` is given up; what it made so far stays on record"
    return Answer({"run": run, "cancelling": False, "given_up": waiting[-1].command}, [given_up])


@main.command()
@click.option("--rejected", is_flag=True, help="Also the weights of rejected checkpoints and of mid-trained ones.")
@options.dry_run
@answers
def gc(project: Path | None, rejected: bool, dry_run: bool) -> Answer:
    """Free what nothing refers to: halves of files, progress of runs that ended, folders not on record.

    \b
    Example: recover gc --rejected --dry-run
    """
    from pipelines.job import unfinished_jobs
    from pipelines.project.garbage_collection import collect_garbage
    from pipelines.project.lock import command_line, project_lock
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    with project_lock(opened.home, command_line()):
        jobs = {job.id: job.checkpoints for job in unfinished_jobs(opened.home)}
        freed = collect_garbage(opened, jobs, rejected=rejected, dry_run=dry_run)
    size = sum(size for _, size in freed)
    found = {"freed": [str(path) for path, _ in freed], "bytes": size, "dry_run": dry_run}
    for path, each in freed:
        log.info(f"{'would remove' if dry_run else 'removed'} {path} ({each / 1e6:.1f} MB)")
    return Answer(found, [f"{size / 1e6:.1f} MB {'could be' if dry_run else 'were'} freed"])


@main.group()
def db() -> None:
    """The record's database.

    \b
    Example: recover db upgrade
    """


@db.command()
@answers
def upgrade(project: Path | None) -> Answer:
    """Bring the record of an earlier release to this one's tables. Other commands do it, too, when they open it.

    \b
    Example: recover db upgrade
    """
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    return Answer(
        {"record": opened.database_label, "projects": len(opened.reader.projects())}, ["the record is up to date"]
    )
