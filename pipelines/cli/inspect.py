"""Commands that show what a project has stored: status, runs, show, and as pages: dashboard, report."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, in_project, main, options, report_errors, write_page
from pipelines.log import duration
from recovery.errors import RecoverError

if TYPE_CHECKING:
    from db.tables import Cycle, Stage
    from pipelines.project.project import Project

STATUS_KEYS = ("project", "name", "base", "current", "against_gate", "cycles", "running", "pid", "host", "progress",
               "interrupted", "next")  # fmt: skip


@main.command()
@command_result
def status(project: Path | None) -> CommandResult:
    """Show the current checkpoint, the cycles, and what to run next.

    \b
    Example: recover status
    """
    from db.next_attempt import next_attempt
    from db.tables import promotion_against_gate
    from db.verdicts import gate_outcome
    from pipelines.project.locations import describe_base, resolve_base
    from pipelines.project.lock import current_run, interrupted_jobs, running_command
    from pipelines.project.project import Project
    from pipelines.project.runs import overtaken

    if project is not None and not project.is_dir():
        Project.open_existing(project)  # raises
    if not Project.exists(project):
        resolve_base(project)  # refuses a recover.toml that does not fit
        command = "recover demo, recover cycle --docs DIR, or recover check MODEL --base BASE"
        data: dict[str, Any] = dict.fromkeys(STATUS_KEYS) | {"cycles": [], "interrupted": [], "next": command}
        return CommandResult(data, [f"There is no project here yet; next: {command}"])
    opened = Project.open(project)
    cycles, current = opened.reader.cycles(opened.id), opened.recorded_current
    overruled = promotion_against_gate(opened.reader.promotions(opened.id), current.id)
    against_gate = None
    if overruled:
        outcome = gate_outcome(overruled.verdict)
        against_gate = {"outcome": outcome, "who": overruled.who, "why": overruled.why, "at": _timestamp(overruled.at)}
    holder = running_command(opened)
    interrupted = interrupted_jobs(opened.home, holder.job if holder else None)
    obstacles = [overtaken(opened, job, job is interrupted[-1]) for job in interrupted]
    can_resume = bool(interrupted) and not obstacles[-1]  # the latest is resumed
    last, advice = opened.last_cycle, None
    command = "recover resume" if can_resume else _next_command(last)
    if holder:
        run = current_run(opened)
        stop = "recover cancel" if run and run.kind != "eval" else "Ctrl-C"
        command = f"wait until it ends, or stop it with {stop}"
    elif last and not can_resume and (advice := next_attempt(last, opened.reader.runs(opened.id))):
        command = advice.command
    data = {
        "project": str(opened.root),
        "name": opened.name,
        "base": opened.base,
        "current": current.reference,
        "against_gate": against_gate,
        "cycles": [_cycle_data(cycle) for cycle in cycles],
        "running": holder.command if holder else None,
        "pid": holder.pid if holder else None,
        "host": holder.host if holder else None,
        "progress": holder.progress if holder else None,
        "interrupted": [job.command for job in interrupted],
        "next": command,
    }
    lines = [f"project  {opened.name}, in {opened.database_label}"] if opened.is_shared else []
    lines += [f"base     {describe_base(opened.base)}", f"current  {data['current']}"]
    if overruled:
        lines += [f"         {overruled.against_gate} by {overruled.who} on {overruled.at:%Y-%m-%d}: {overruled.why}"]
    lines += [f"cycle {cycle.number}  {cycle.outcome}  {cycle.documents or ''}" for cycle in cycles]
    lines += _latest_scores(cycles)
    lines += [f"running: {holder}"] if holder else []
    lines += [f"  {_progress_text(holder.progress)}"] if holder and holder.progress else []
    lines += [
        f"interrupted: {why or f'recover {job.command}'}" for job, why in zip(interrupted, obstacles, strict=True)
    ]
    return CommandResult(data, [*lines, str(advice) if advice else f"next: {command}"])


@main.command()
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="List this many runs.")
@command_result
@in_project
def runs(project: "Project", limit: int) -> CommandResult:
    """List runs, newest first.

    \b
    Example: recover runs --limit 50
    """
    stages = project.reader.stages(project.id)
    scores = {stage.checkpoint.run_id: _scores(stage) for stage in stages if stage.checkpoint and stage.scores}
    from pipelines.project.lock import mark_ended

    listed = mark_ended(project, project.reader.runs(project.id)[:limit])
    busy = project.reader.busy_seconds(run.id for run in listed)
    rows = [
        {
            "run": run.id,
            "kind": run.kind,
            "stage": run.inputs.stage,
            "cycle": run.cycle,
            "status": "stale" if run.stale else run.status,
            "started": _timestamp(run.started_at),
            "seconds": round(busy[run.id], 1) if run.finished_at and run.id in busy else None,
            "host": run.host,
            "error": run.error,
            "stopped": run.stopped,
            "scores": scores.get(run.id),
        }
        for run in listed
    ]
    return CommandResult({"runs": rows}, [_run_line(row) for row in rows] or ["There are no runs yet"])


@main.command()
@click.argument("ref", default="current")
@command_result
@in_project
def show(project: "Project", ref: str) -> CommandResult:
    """Show one checkpoint: its files, its scores and its ancestors.

    \b
    Example: recover show cycle:1
    """
    from pipelines.evaluation.printed_tables import describe_cost

    checkpoint = project.find(ref, known=True)
    with suppress(RecoverError):  # its weights may be gone
        checkpoint = project.locate(checkpoint)
    is_gone = Path(checkpoint.path).is_absolute() and not Path(checkpoint.path).is_dir()
    run = project.reader.run(checkpoint.run_id) if checkpoint.run_id else None
    evaluations: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for evaluation in project.reader.evaluations(checkpoint.id):
        task = {"suite": evaluation.suite, "task": evaluation.task, "data": evaluation.data}
        at = _timestamp(evaluation.at)
        cost = evaluation.settings.get("cost")
        evaluations.append({**task, "at": at, "seconds": evaluation.seconds, "cost": cost})
        for name, score in evaluation.scores.items():
            scores.append({**task, "metric": name, "value": score.value, "n": score.n, "at": at})
    stages = {stage.checkpoint.id: stage for stage in project.reader.stages(project.id) if stage.checkpoint}
    lineage: list[dict[str, Any]] = [
        {"checkpoint": ancestor.reference, "scores": _scores(stages[ancestor.id])}
        for ancestor in project.reader.lineage(checkpoint.id)
    ]
    data: dict[str, Any] = {
        "checkpoint": checkpoint.reference,
        "path": checkpoint.path,
        "kind": checkpoint.kind,
        "hash": checkpoint.hash,
        "step": checkpoint.step,
        "run": checkpoint.run_id,
        "settings": run.settings if run else None,
        "inputs": run.inputs.as_json() if run else None,
        "code_version": run.code_version if run else None,
        "lineage": lineage,
        "evaluations": evaluations,
        "scores": scores,
    }
    names = ("checkpoint", "path", "kind", "hash", "step", "run")
    lines = [f"{name:<10} {'-' if data[name] is None else data[name]}" for name in names]
    lines[1] += " (gone)" * is_gone
    lines.append("lineage")
    lines += [f"  {row['checkpoint']:<22} {_score_text(row['scores'])}".rstrip() for row in lineage]
    for s in scores:
        value = "-" if s["value"] is None else f"{s['value']:.3f}"
        lines.append(f"  {s['suite']:<10} {s['task']:<14} {s['metric']:<30} {value}  n = {s['n']}")
    lines += [f"  {e['suite']:<10} {e['task']:<14} took {describe_cost(e['seconds'], e['cost'])}" for e in evaluations]
    return CommandResult(data, lines)


@main.command()
@options.project
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="[default: the first free one from 7860]")
@click.option(
    "--auth",
    metavar="USER:PASSWORD",
    envvar="RECOVER_AUTH",
    show_envvar=True,
    help="Ask for this user and password; required on any address but loopback.",
)
@click.option("--unsafe-no-auth", is_flag=True, help="Let in anybody who can reach the address.")
def dashboard(project: Path | None, host: str, port: int | None, auth: str | None, unsafe_no_auth: bool) -> None:
    """Serve the project's results as web pages.

    \b
    Example: recover dashboard --port 7861
    """
    with report_errors():
        from dashboard.server.serve import ServeError, ServerOptions, serve
        from pipelines.cli.dashboard_actions import dashboard_actions
        from pipelines.project.project import Project

        opened = Project.open_existing(project)
        try:
            with suppress(KeyboardInterrupt):  # Ctrl-C is how to close it
                server = ServerOptions(host, port, auth, unsafe_no_auth)
                serve(opened.reader, server, opened.name, dashboard_actions(opened))
        except ServeError as error:
            raise RecoverError(str(error)) from error


@main.command()
@click.argument("cycle", type=click.IntRange(min=1))
@click.option("--to", type=options.FilePath(dir_okay=False), help="[default: report-cycle-N.html]")
@command_result
@in_project
def report(project: "Project", cycle: int, to: Path | None) -> CommandResult:
    """Write one cycle as a single HTML file.

    The file has the scores, the gate's verdict, training curves and notes.

    \b
    Example: recover report 3 --to report.html
    """
    from dashboard.html_report import report as render

    recorded = project.reader.project(project.name)
    if recorded is None:
        raise RecoverError("This project has no results yet. Run `recover midtrain --docs DIR`.")
    content = render(project.reader, recorded, cycle)
    to = to or Path(f"report-cycle-{cycle}.html")
    write_page(to, content)
    return CommandResult({"cycle": cycle, "path": str(to), "bytes": to.stat().st_size}, [f"Cycle {cycle} is in {to}"])


def _cycle_data(cycle: "Cycle") -> dict[str, Any]:
    stages = {"clean": cycle.clean, "damaged": cycle.damaged, "recovered": cycle.recovered}
    return {
        "cycle": cycle.number,
        "status": cycle.status,
        "outcome": cycle.outcome,
        "documents": cycle.documents,
        **{name: _scores(stage) for name, stage in stages.items()},
    }


def _latest_scores(cycles: Sequence["Cycle"]) -> list[str]:
    """The clean model's scores, and those of each cycle's last checkpoint."""
    from pipelines.evaluation.printed_tables import scores_table

    stages = {f"cycle {c.number}": c.recovered if c.recovered.scores else c.damaged for c in cycles}
    rows = {name: _scores(stage) for name, stage in stages.items() if stage.scores}
    return scores_table({"clean": _scores(cycles[-1].clean), **rows}) if rows else []


def _scores(stage: "Stage") -> dict[str, float | None]:
    from db.headline_scores import MEASURES

    return {suite: stage.scores[suite].value if suite in stage.scores else None for suite in MEASURES}


def _run_line(row: dict[str, Any]) -> str:
    cycle = f"cycle {row['cycle']}" if row["cycle"] else "-"
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f} s"
    status = f"{row['status']:<12} {row['started']}  {seconds}  {row['error'] or ''}"
    line = f"run {row['run']:<4} {row['kind']:<9} {cycle:<9} {status}"
    return f"{line.rstrip()}  {_score_text(row['scores'])}" if row["scores"] else line


def _score_text(scores: Mapping[str, float | None]) -> str:
    from db.headline_scores import MEASURES

    return " · ".join(f"{MEASURES[name]} {value:.3f}" for name, value in scores.items() if value is not None)


def _progress_text(progress: dict[str, Any]) -> str:
    """Such as "measuring: 1,200 of 2,000 replies, about 3 min left"."""
    left = "" if progress["seconds_left"] is None else f", about {duration(progress['seconds_left'])} left"
    return f"{progress['stage']}: {progress['done']:,} of {progress['total']:,} {progress['units']}{left}"


def _timestamp(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _next_command(cycle: "Cycle | None") -> str:
    """What the last cycle still needs, else the next cycle."""
    if cycle is None or cycle.status != "open":
        return "recover cycle --docs DIR"
    return "recover distill --teacher base"  # also where a model was distilled: the gate has not judged it
