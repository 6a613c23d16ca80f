"""The commands that read the record: status, runs, show, lineage."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pipelines.cli import Answer, answers, main


@main.command()
@answers
def status(project: Path | None) -> Answer:
    """Where the project stands, and what to run next.

    \b
    Example: recover status
    """
    from pipelines.job_files import unfinished_commands
    from pipelines.project.project import Project

    if not Project.exists(project):
        following = "recover demo, or recover midtrain --docs DIR"
        nothing: dict[str, Any] = {"project": None, "base": None, "current": None, "cycles": []}
        nothing |= {"interrupted": [], "next": following}
        return Answer(nothing, [f"no project here yet; next: {following}"])
    opened = Project.open(project)
    cycles = opened.reader.cycles(opened.id)
    waiting = unfinished_commands(opened.home)
    following = "recover resume" if waiting else _following(opened.last_cycle)
    listed = [
        {
            "cycle": c.number,
            "status": c.status,
            "outcome": c.outcome,
            "documents": c.documents,
            **{
                name: {suite: score.value for suite, score in stage.scores.items()}
                for name, stage in (("clean", c.clean), ("damaged", c.damaged), ("recovered", c.recovered))
            },
        }
        for c in cycles
    ]
    found = {
        "project": str(opened.root),
        "base": opened.base,
        "current": opened.current.reference,
        "cycles": listed,
        "interrupted": waiting,
        "next": following,
    }
    words = [f"base     {opened.base}", f"current  {found['current']}"]
    words += [f"cycle {c.number}  {c.outcome}  {c.documents or ''}" for c in cycles]
    words += [f"interrupted: recover {command}" for command in waiting]
    return Answer(found, [*words, f"next: {following}"])


@main.command()
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The latest so many.")
@answers
def runs(project: Path | None, limit: int) -> Answer:
    """What was run here: the latest first.

    \b
    Example: recover runs --limit 50
    """
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    silent = {run.id for run in opened.reader.stale_runs(opened.id)}
    listed = [
        {
            "run": r.id,
            "kind": r.kind,
            "stage": r.inputs.stage,
            "cycle": r.cycle,
            "status": "silent" if r.id in silent else r.status,
            "started": _time(r.started_at),
            "seconds": round((r.finished_at - r.started_at).total_seconds(), 1) if r.finished_at else None,
            "host": r.host,
            "error": r.error,
        }
        for r in sorted(opened.reader.runs(opened.id), key=lambda r: -r.id)[:limit]
    ]
    words = [
        f"run {r['run']:<4} {r['kind']:<9} {'cycle ' + str(r['cycle']) if r['cycle'] else '-':<9} {r['status']:<12} "
        f"{r['started']}  {'' if r['seconds'] is None else format(r['seconds'], '.0f') + ' s'}  {r['error'] or ''}"
        for r in listed
    ]
    return Answer({"runs": listed}, words or ["no run yet"])


@main.command()
@click.argument("ref", default="current")
@answers
def show(project: Path | None, ref: str) -> Answer:
    """One checkpoint: where it lies, what it came from, what it scored.

    \b
    Example: recover show cycle:1
    """
    from pipelines.evaluation.tables import describe_cost
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    checkpoint = opened.resolve(ref)
    run = opened.reader.run(checkpoint.run_id) if checkpoint.run_id else None
    evaluations = opened.reader.evaluations(checkpoint.id)
    taken: list[dict[str, Any]] = [
        {
            "suite": e.suite,
            "task": e.task,
            "data": e.data,
            "at": _time(e.at),
            "seconds": e.seconds,
            "cost": e.settings.get("cost"),
        }
        for e in evaluations
    ]
    scores: list[dict[str, Any]] = [
        {
            "suite": e.suite,
            "task": e.task,
            "data": e.data,
            "metric": name,
            "value": s.value,
            "n": s.n,
            "at": _time(e.at),
        }
        for e in evaluations
        for name, s in e.scores.items()
    ]
    found: dict[str, Any] = {
        "checkpoint": checkpoint.reference,
        "path": checkpoint.path,
        "kind": checkpoint.kind,
        "hash": checkpoint.hash,
        "step": checkpoint.step,
        "run": checkpoint.run_id,
        "settings": run.settings if run else None,
        "code_version": run.code_version if run else None,
        "lineage": [c.reference for c in opened.reader.lineage(checkpoint.id)],
        "evaluations": taken,
        "scores": scores,
    }
    words = [f"{name:<10} {found[name]}" for name in ("checkpoint", "path", "kind", "hash", "step", "run")]
    words += [f"from       {' ← '.join(found['lineage'])}"]
    words += [
        f"  {s['suite']:<10} {s['task']:<14} {s['metric']:<30} {_score(s['value'])}  n = {s['n']}" for s in scores
    ]
    words += [f"  {t['suite']:<10} {t['task']:<14} took {describe_cost(t['seconds'], t['cost'])}" for t in taken]
    return Answer(found, words)


@main.command()
@click.argument("ref", default="current")
@answers
def lineage(project: Path | None, ref: str) -> Answer:
    """From a checkpoint back to the clean model, with what happened on the way.

    \b
    Example: recover lineage current
    """
    from pipelines.project.project import Project

    opened = Project.open_existing(project)
    stages = {stage.checkpoint.id: stage for stage in opened.reader.stages(opened.id) if stage.checkpoint}
    chain: list[dict[str, Any]] = [
        {
            "checkpoint": c.reference,
            "role": c.role,
            "cycle": c.cycle,
            "path": c.path,
            "scores": {suite: s.value for suite, s in stages[c.id].scores.items()},
        }
        for c in opened.reader.lineage(opened.resolve(ref).id)
    ]
    words = [
        f"{c['checkpoint']:<22} " + " · ".join(f"{suite} {_score(v)}" for suite, v in c["scores"].items())
        for c in chain
    ]
    return Answer({"lineage": chain}, words)


def _time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _following(last: Any) -> str:
    """What the last cycle waits for."""
    if last is None or last.status != "open":
        return "recover cycle --docs DIR"
    if last.recovered.checkpoint is not None:
        return f"recover promote cycle:{last.number}, or with --reject"
    return "recover distill --teacher base"
