"""The commands that change weights: midtrain, distill, cycle, resume, demo."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import REJECTED, Answer, answers, main, options, say

if TYPE_CHECKING:
    from pipelines.beginning import Wishes


@main.command()
@options.together(options.docs, options.training, options.reading)
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
@options.together(options.docs, options.training, options.reading, options.distilling, options.auto)
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
    from pipelines.cycle import carry_out
    from pipelines.errands import unfinished
    from pipelines.lock import command_line, held
    from pipelines.project import Project
    from recovery.errors import RecoverError

    opened = Project.begun(project)
    with held(opened.home, command_line()):
        waiting = unfinished(opened.home)
        if run is not None:
            wanted = opened.run(run).settings.get("errand")
            waiting = [errand for errand in waiting if errand.id == wanted]
        if not waiting:
            what = "nothing was interrupted here" if run is None else f"run {run} has nothing left to do"
            raise RecoverError(f"{what}; `recover runs` lists what was done")
        errand = waiting[-1]
        say(f"picking up `recover {errand.command}`")
        return _answer(carry_out(opened, errand, say, _decision if errand.ask else None))


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

    found, words = run_demo(project or Path("recover-demo"), quick=quick, seed=seed, say=say)
    return Answer(found, words)


def _do(folder: Path | None, command: str, dry_run: bool, typed: dict[str, Any], recipe_of: str) -> Answer:
    """Begin the errand that was typed, and carry it out; or only say what it would be."""
    from pipelines.beginning import begin, intended
    from pipelines.cycle import carry_out
    from pipelines.lock import command_line, held
    from pipelines.project import Project, names_a_model
    from pipelines.teaching import ROUTER

    wishes = _wishes(command, typed, recipe_of)
    fresh = not Project.is_begun(folder)
    with TemporaryDirectory() as thrown_away:
        elsewhere = Path(thrown_away) if fresh and dry_run else None
        opened = Project.open(folder, wishes.base, elsewhere)
        named = wishes.teacher if wishes.teacher != ROUTER else None
        if fresh and opened.base_is_default and named and names_a_model(named):
            say(f"base: {named}, the teacher, since no other was named: it is what the student is held against")
            wishes = replace(wishes, base=named)
            opened = Project.open(folder, wishes.base, elsewhere)
        if dry_run:
            found = intended(opened, wishes, say)
            return Answer(found, [f"{name}: {value}" for name, value in found.items() if value is not None])
    with held(opened.home, command_line()):
        errand = begin(opened, wishes, say)
        return _answer(carry_out(opened, errand, say, _decision if errand.ask else None))


def _wishes(command: str, typed: dict[str, Any], recipe_of: str) -> "Wishes":
    from pipelines.beginning import Wishes
    from pipelines.settings import AUTO

    flags: dict[str, Any] = {}
    for name in ("recipe", "max_steps"):
        _put(flags, recipe_of, name, typed.pop(name, None))
    for group, names in (
        ("distill", ("warm_start", "max_minutes", "max_flops")),
        ("midtrain", ("replay", "rehearse", "recollect", "reword")),
    ):
        for name in names:
            _put(flags, group, name, typed.pop(name, None))
    if typed.pop("auto", False):
        for group, name in (("midtrain", "replay"), ("distill", "warm_start")):
            flags.setdefault(group, {}).setdefault(name, AUTO)
    if (engine := typed.pop("engine", None)) is not None:
        flags["engine"] = engine
    return Wishes(command, flags=flags, **typed)


def _put(flags: dict[str, Any], group: str, name: str, value: Any) -> None:
    if value is not None:
        flags.setdefault(group, {})[name] = value


def _decision(verdict: Any) -> bool | None:
    """A person's, on a terminal; elsewhere it waits for `recover promote`."""
    import sys

    say(f"the gate: {verdict.outcome}: {verdict.reason}")
    if not sys.stdin.isatty():
        return None
    try:
        return click.confirm("promote?", default=verdict.passed, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None


def _answer(done: Any) -> Answer:
    from pipelines.learning import Trained
    from pipelines.tables import scores_table

    if isinstance(done, Trained):
        made = done.checkpoint
        found = {
            "run": done.run,
            "cycle": made.cycle,
            "checkpoint": made.reference,
            "path": made.path,
            "steps": done.steps,
            "tokens": done.tokens,
            "seconds": round(done.seconds, 1),
            "replay": done.replay,
        }
        return Answer(found, [f"{made.reference} is in {made.path}", "next: recover distill --teacher base"])
    found = done.as_json()
    decision = "waiting for a decision" if found["waits"] else done.verdict.put(done.promoted)
    start = "damaged" if found["cycle"] else "before"  # nothing says of a model from outside that it is damaged
    words = [
        *scores_table({"clean": found["clean"], start: found["damaged"], "recovered": found["recovered"]}),
        f"{decision}: {done.verdict.reason}",
        f"{found['checkpoint']} is in {found['path']}",
    ]
    return Answer(found, words, 0 if found["promoted"] or found["waits"] else REJECTED)
