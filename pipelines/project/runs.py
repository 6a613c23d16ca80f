"""Runs in the record: each is started, resumed and ended together with the work it stands for; and the promoted cycles
behind a checkpoint."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from db import RecordError
from db.headline_scores import PROBE, headline
from db.tables import Checkpoint, Cycle, Run, RunInputs, RunKind, last_decisions
from pipelines.log import duration
from pipelines.project.locations import relocate
from pipelines.project.project import Project

RUN_NAMES = {"midtrain": "mid-training", "eval": "measuring", "distill": "distilling"}  # by kind
COMMANDS = {
    "midtrain": ("mid-training", {"midtrain"}),
    "distill": ("distillation", {"distill"}),
    "cycle": ("cycle", {"midtrain", "distill"}),
}  # by command: its name, and the trainings of its job


class JobKey(NamedTuple):
    """What of an unfinished job can be read without the libraries of models."""

    id: str
    command: str
    current: int | None  # the checkpoint that was current when the job was saved


def made_promoted(cycle: Cycle, project: Project, job: str) -> bool:
    """Whether a run of the job made the checkpoint that stands for the cycle."""
    promoted = cycle.recovered.checkpoint
    return promoted is not None and promoted.run_id in {run.id for run in runs_of_command(project, job)}


def overtaken(project: Project, job: JobKey, is_latest: bool = True) -> str:
    """What was promoted since the job was saved, and would be lost if it went on, as a sentence; empty if nothing was.

    A promotion by the job itself does not count: it was interrupted before its end."""
    now, then = project.recorded_current, project.reader.checkpoint(job.current or 0)
    runs = runs_of_command(project, job.id)
    run_ids, numbers = {run.id for run in runs}, {run.cycle for run in runs}
    cancel = "recover cancel" if is_latest or not runs else f"recover cancel {runs[0].id}"
    for cycle in project.reader.cycles(project.id):
        if cycle.number in numbers and cycle.status == "promoted" and not made_promoted(cycle, project, job.id):
            return (
                f"Cycle {cycle.number}, which `recover {job.command}` belongs to, was promoted by another command "
                f"since: discard the rest with `{cancel}`."
            )
    if then is None or now.id == then.id or now.run_id in run_ids:
        return ""
    return (
        f"`recover {job.command}` began when {then.reference} was current, and would drop {now.reference}, which was "
        f"promoted since: discard it with `{cancel}`, or return with `recover promote {then.reference}` first."
    )


def runs_of_job(project: Project, job: str) -> list[Run]:
    return [run for run in project.reader.runs(project.id) if run.inputs.job == job]


def runs_of_command(project: Project, job: str) -> list[Run]:
    """Those of a job and, for a repair, of the jobs of its moves."""
    return [run for run in project.reader.runs(project.id) if is_of_command(run, job)]


def is_of_command(run: Run, job: str) -> bool:
    """A move of a repair has the repair's id before its own name."""
    of_run = run.inputs.job or ""
    return job in (of_run, of_run.partition("-")[0])


def run_of_stage(
    project: Project, job: str, stage: str, is_meant: Callable[[Run], bool] = lambda run: True
) -> Run | None:
    """The last one; none where it ended with weights that were deleted since."""
    run = next((run for run in runs_of_job(project, job) if run.inputs.stage == stage and is_meant(run)), None)
    ended = project.reader.run_checkpoint(run.id) if run else None
    return None if ended and ended.deleted_at else run


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
    finds its results. A repair has the same job with another limit: then measuring is another run, and so is a training
    whose prompts are others, since none may be an item of an evaluation."""
    tracker = project.tracker

    def is_meant(run: Run) -> bool:
        return (run.inputs.prompts, run.settings.get("limit")) == (inputs.prompts, settings.get("limit"))

    started = run_of_stage(project, inputs.job, inputs.stage or "", is_meant) if inputs.job else None
    if started is not None and started.status == "done":
        yield started.id
        return
    if started is not None:
        run = started.id
        tracker.resume_run(run)
    else:
        run = tracker.start_run(project.id, kind, cycle, settings, seed, steps, inputs)
    around, project.open_run = project.open_run, (run, kind)
    try:
        yield run
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        reason = str(error) or (None if interrupted else type(error).__name__)
        with suppress(RecordError):  # the first error matters more; a run that stays silent is recognised as ended
            tracker.finish_run(run, "interrupted" if interrupted else "failed", reason)
        raise
    finally:
        project.open_run = around
    tracker.finish_run(run, "done")


def last_time(project: Project, command: str) -> str | None:
    """Such as "The last cycle here took 12 min: mid-training 5 min, measuring 3 min, distilling 4 min".

    These are the times of steps and evaluations: a run may have lain interrupted between them."""
    jobs = defaultdict[str | None, list[Run]](list)
    for run in project.reader.runs(project.id):
        jobs[run.inputs.job].append(run)
    name, trainings = COMMANDS[command]
    ended = (
        runs
        for job, runs in jobs.items()
        if job and all(run.status == "done" for run in runs) and {run.kind for run in runs} - {"eval"} == trainings
    )
    last = max(ended, key=lambda runs: max(run.id for run in runs), default=None)
    if last is None:
        return None
    times = dict.fromkeys(RUN_NAMES, 0.0)
    busy = project.reader.busy_seconds(run.id for run in last)
    for run in last:
        times[run.kind] += busy.get(run.id, 0.0)
    stages = [f"{RUN_NAMES[kind]} {duration(seconds)}" for kind, seconds in times.items() if seconds]
    return f"The last {name} here took {duration(sum(times.values()))}: {', '.join(stages)}" if stages else None


@dataclass(frozen=True)
class PastCycle:
    cycle: int  # its number
    checkpoint: int  # id of the one it ended with
    corpus: str  # hash
    questions: Path | None
    knowledge: float | None  # score of that checkpoint; None where it was not measured by these questions
    evaluation: int | None = None  # id of the evaluation that has its items


def past_cycles(project: Project, checkpoint: Checkpoint) -> list[PastCycle]:
    """The cycles whose mid-trained checkpoints a checkpoint was made from, oldest first, if they were promoted, or what
    was made from these was: a cycle that was rejected later is in the model all the same.

    A cycle ends with the checkpoint that stands for it; where another one was distilled from the mid-trained one, with
    that; where that one was promoted itself, with it. Its questions are those of that distillation, else of its
    mid-training."""
    lineage = project.reader.lineage(checkpoint.id)
    ids = [ancestor.id for ancestor in lineage]
    runs = {run.id: run for run in project.reader.runs(project.id)}
    stages = {stage.checkpoint_id: stage for stage in project.reader.stages(project.id)}
    decisions = last_decisions(project.reader.promotions(project.id))
    promoted = {id for id, decision in decisions.items() if decision == "promoted"}
    in_current = {ancestor.id for ancestor in project.reader.lineage(project.recorded_current.id)}
    past = []
    for cycle in project.reader.cycles(project.id):
        damaged = cycle.damaged.checkpoint
        if damaged is None or damaged.id not in ids:
            continue
        of_cycle = ids.index(damaged.id)
        is_kept = damaged.id in in_current or not promoted.isdisjoint(ids[: of_cycle + 1])
        if cycle.status != "promoted" and not is_kept:
            continue
        later = reversed(lineage[:of_cycle])
        distilled = [c.id for c in takewhile(lambda c: c.role == "recovered", later)]
        if not distilled and damaged.id in promoted:
            distilled = [damaged.id]
        midtraining = runs.get(damaged.run_id or 0)
        inputs = midtraining.inputs if midtraining else RunInputs()
        if inputs.corpus is None or not distilled:
            continue
        end = cycle.recovered.checkpoint_id if cycle.recovered.checkpoint_id in distilled else distilled[-1]
        distillation = runs.get(next(c.run_id for c in lineage if c.id == end) or 0)
        file = (distillation.inputs.questions if distillation else None) or inputs.questions
        questions = relocate(project.home, Path(file)) if file else None
        standing = cycle.recovered
        if questions:
            ends = filter(None, (end, standing.checkpoint_id))
            score, evaluation = next(filter(None, (_by_questions(project, id, questions) for id in ends)), (None, None))
        else:
            knowledge = stages[end].scores.get("knowledge") or standing.scores.get("knowledge")
            score = (knowledge.value if knowledge else None) or 0.0  # 0 if only bits per byte were measured
            evaluation = knowledge.evaluation if knowledge else None
        past.append(PastCycle(cycle.number, end, inputs.corpus, questions, score, evaluation))
    return past


def dropped_cycles(project: Project, checkpoint: Checkpoint) -> str:
    """The cycles that a promotion of the checkpoint would drop, such as "cycle 3"; empty if there are none.

    They began after its own mid-training, or were first promoted after it, and the current checkpoint has learned
    them."""
    midtrained = [ancestor for ancestor in project.reader.lineage(checkpoint.id) if ancestor.role == "midtrained"]
    if not midtrained:
        return ""
    begun = midtrained[0]
    promotions = [p for p in project.reader.promotions(project.id) if p.decision == "promoted"]
    first_promoted = {p.cycle: p.at for p in sorted(promotions, key=lambda p: p.id, reverse=True)}
    since = {cycle for cycle, at in first_promoted.items() if at > begun.created_at}
    current = project.reader.lineage(project.recorded_current.id)
    later = [c for c in current if c.role == "midtrained" and (c.id > begun.id or c.cycle in since)]
    numbers = sorted({c.cycle for c in later if c.cycle} - {c.cycle for c in midtrained})
    return f"{'cycle' if len(numbers) == 1 else 'cycles'} {', '.join(map(str, numbers))}" if numbers else ""


def _by_questions(project: Project, checkpoint: int, questions: Path) -> tuple[float, int] | None:
    """The score of a checkpoint by the questions of this file, and the evaluation; of several that of the most."""
    from evals.measurement_keys import data_hash  # imports numpy, which most commands do without
    from evals.results import item_key

    content = item_key(data_hash(questions)) if questions.is_file() else None
    measured = [
        (score.n, evaluation.id, score.value)
        for evaluation in project.reader.evaluations(checkpoint)
        if content and evaluation.suite == "knowledge" and evaluation.content == content
        if (score := headline(evaluation)) and score.value is not None and evaluation.settings.get("part") != PROBE
    ]
    if not measured:
        return None
    _, id, known = max(measured)
    return known, id
