"""The commands that change weights: midtrain, distill, cycle, resume, demo."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import REJECTED, Answer, answers, main, options
from pipelines.log import log

if TYPE_CHECKING:
    from pipelines.prepare_job import Request


@main.command()
@options.together(options.docs, options.training, options.mix)
@answers
def midtrain(project: Path | None, dry_run: bool, **typed: Any) -> Answer:
    """Teach the current model the documents; it may cost some of its behaviour.

    \b
    Example: recover midtrain --docs ./corpus
    """
    return _do(project, "midtrain", dry_run, typed, recipe_of="midtrain")


@main.command()
@options.together(
    click.option("--student", metavar="REF", help="What to repair [default: the open cycle's mid-trained checkpoint]"),
    options.training,
    options.distilling,
)
@answers
def distill(project: Path | None, dry_run: bool, **typed: Any) -> Answer:
    """Bring the behaviour back from a clean teacher, on what the student itself writes; then judge and promote.

    \b
    Examples: recover distill --teacher base
              recover distill --student ./my-finetune --teacher Qwen/Qwen3-8B
    """
    return _do(project, "distill", dry_run, typed, recipe_of="distill")


@main.command()
@options.together(options.docs, options.training, options.mix, options.distilling, options.auto)
@answers
def cycle(project: Path | None, dry_run: bool, **typed: Any) -> Answer:
    """Teach the documents, measure, bring the behaviour back, measure again, promote or reject.

    \b
    Example: recover cycle --docs ./corpus --questions ./questions.jsonl
    """
    return _do(project, "cycle", dry_run, typed, recipe_of="distill")


@main.command()
@click.argument("run", type=click.IntRange(min=1), required=False)
@answers
def resume(project: Path | None, run: int | None) -> Answer:
    """Pick up what was interrupted: the latest, or what RUN belongs to.

    \b
    Example: recover resume
    """
    from pipelines.cycle import run_job
    from pipelines.job import unfinished
    from pipelines.project.lock import command_line, held
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    opened = Project.open_existing(project)
    with held(opened.home, command_line()):
        waiting = unfinished(opened.home)
        if run is not None:
            wanted = opened.run(run).settings.get("job")
            waiting = [job for job in waiting if job.id == wanted]
        if not waiting:
            what = "nothing was interrupted here" if run is None else f"run {run} has nothing left to do"
            raise RecoverError(f"{what}; `recover runs` lists what was done")
        job = waiting[-1]
        log.info(f"picking up `recover {job.command}`")
        return _answer(run_job(opened, job, _decision if job.ask else None))


@main.command()
@click.option("--quick", is_flag=True, help="One cycle instead of two.")
@options.seed
@answers
def demo(project: Path | None, quick: bool, seed: int) -> Answer:
    """The whole job on the built-in lab model: a new world's documents, damage, recovery, and a table.

    \b
    Example: recover demo --quick
    """
    from pipelines.demo import run_demo

    found, words = run_demo(project or Path("recover-demo"), quick=quick, seed=seed)
    return Answer(found, words)


def _do(folder: Path | None, command: str, dry_run: bool, typed: dict[str, Any], recipe_of: str) -> Answer:
    """Begin the job that was typed, and carry it out; or only say what it would be."""
    from pipelines.cycle import run_job
    from pipelines.prepare_job import describe_job, prepare_job
    from pipelines.project.lock import command_line, held
    from pipelines.project.project import Project, names_a_model
    from pipelines.training.teachers import ROUTER

    request = _request(command, typed, recipe_of)
    fresh = not Project.is_begun(folder)
    with TemporaryDirectory() as thrown_away:
        elsewhere = Path(thrown_away) if fresh and dry_run else None
        opened = Project.open(folder, request.base, elsewhere)
        named = request.teacher if request.teacher != ROUTER else None
        if fresh and opened.base_is_default and named and names_a_model(named):
            log.info(f"base: {named}, the teacher, since no other was named: it is what the student is held against")
            request = replace(request, base=named)
            opened = Project.open(folder, request.base, elsewhere)
        if dry_run:
            found = describe_job(opened, request)
            return Answer(found, [f"{name}: {value}" for name, value in found.items() if value is not None])
    with held(opened.home, command_line()):
        job = prepare_job(opened, request)
        return _answer(run_job(opened, job, _decision if job.ask else None))


def _request(command: str, typed: dict[str, Any], recipe_of: str) -> "Request":
    from pipelines.prepare_job import Request
    from pipelines.settings import AUTO

    flags: dict[str, Any] = {}
    for name in ("recipe", "max_steps"):
        _put(flags, recipe_of, name, typed.pop(name, None))
    for group, names in (
        ("distill", ("warm_start", "max_minutes", "max_flops")),
        ("midtrain", ("mix",)),
    ):
        for name in names:
            _put(flags, group, name, typed.pop(name, None))
    if typed.pop("auto", False):
        for group, name in (("midtrain", "mix"), ("distill", "warm_start")):
            flags.setdefault(group, {}).setdefault(name, AUTO)
    if (engine := typed.pop("engine", None)) is not None:
        flags["engine"] = engine
    return Request(command, flags=flags, **typed)


def _put(flags: dict[str, Any], group: str, name: str, value: Any) -> None:
    if value is not None:
        flags.setdefault(group, {})[name] = value


def _decision(verdict: Any) -> bool | None:
    """A person's, on a terminal; elsewhere it waits for `recover promote`."""
    import sys

    log.info(f"the gate: {verdict.outcome}: {verdict.reason}")
    if not sys.stdin.isatty():
        return None
    try:
        return click.confirm("promote?", default=verdict.passed, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None


def _answer(done: Any) -> Answer:
    from pipelines.evaluation.tables import scores_table
    from pipelines.training.run import RunResult

    if isinstance(done, RunResult):
        made = done.checkpoint
        found = {
            "run": done.run,
            "cycle": made.cycle,
            "checkpoint": made.reference,
            "path": made.path,
            "steps": done.steps,
            "tokens": done.tokens,
            "seconds": round(done.seconds, 1),
            "answers_search": done.replay,
        }
        return Answer(found, [f"{made.reference} is in {made.path}", "next: recover distill --teacher base"])
    found = done.as_json()
    decision = "waiting for a decision" if found["awaiting_decision"] else done.verdict.put(done.promoted)
    start = "damaged" if found["cycle"] else "before"  # nothing says of a model from outside that it is damaged
    words = [
        *scores_table({"clean": found["clean"], start: found["damaged"], "recovered": found["recovered"]}),
        f"{decision}: {done.verdict.reason}",
        f"{found['checkpoint']} is in {found['path']}",
    ]
    return Answer(found, words, 0 if found["promoted"] or found["awaiting_decision"] else REJECTED)
