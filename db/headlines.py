"""The one number a suite is summed up by, for every checkpoint of a project.

A project that is measured by tasks of its own has headlines too: what speaks for a suite is its headline task where
that was measured, else the first task of the latest measurement; and for a task its headline metric, else its first.
"""

from collections import defaultdict
from typing import Any, NamedTuple

from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.orm import Session

from db import tables, views

HEADLINES = {
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
    "retention": ("arithmetic", "match"),
}
METRICS = tuple(metric for _, metric in HEADLINES.values())
"""What sums up a task that is no headline itself, where it has one of these: the first release kept no order."""
BITS = "bits_per_byte"
"""Less is better, and it is no share: it is told of passages, and never speaks for knowledge."""


class Measured(NamedTuple):
    cycle: int | None
    """The number of the cycle it was measured in."""
    suite: str
    score: views.Headline


def measured(session: Session, project: int) -> dict[int, list[Measured]]:
    """By checkpoint, everything that could speak for its suites, the best spokesman last."""
    found: dict[int, list[Measured]] = defaultdict(list)
    spoken: set[tuple[int, int | None, str]] = set()
    for checkpoint, run, cycle, suite, score in sorted(_first_scores(session, project), key=_has_headline_task):
        who = (checkpoint, run, suite)
        if run is not None and who in spoken and not _is_headline_task(suite, score.task):
            continue  # the first task of a measurement speaks, not the last
        spoken.add(who)
        found[checkpoint].append(Measured(cycle, suite, score))
    return found


def stage(
    checkpoint: views.Checkpoint | None, known: dict[int, list[Measured]], cycle: int | None = None
) -> views.Stage:
    """A checkpoint with its latest headlines; those measured in the given cycle, on its documents, come first."""
    if checkpoint is None:
        return views.Stage()
    scores = sorted(known.get(checkpoint.id, []), key=lambda one: cycle in (None, one.cycle))
    return views.Stage(checkpoint, {one.suite: one.score for one in scores if one.suite in HEADLINES})


def headline(evaluation: views.Evaluation) -> views.Score | None:
    """The score that stands for one measurement."""
    named = [dict(HEADLINES.values()).get(evaluation.task, ""), *METRICS]
    found = (evaluation.scores[name] for name in named if name in evaluation.scores)
    return next(found, None) or next(iter(evaluation.scores.values()), None)


def _is_headline_task(suite: str, task: str) -> bool:
    return suite in HEADLINES and HEADLINES[suite][0] == task


def _has_headline_task(row: tuple[Any, ...]) -> bool:
    *_, suite, score = row
    return _is_headline_task(suite, score.task)


def _first_scores(session: Session, project: int) -> list[tuple[Any, ...]]:
    """The score that stands for each evaluation, oldest first: (checkpoint, run, cycle, suite, score).

    Bits are left out for knowledge, as the gate leaves them out.
    """
    evaluation, score = tables.Evaluation, tables.Score
    named = or_(*(and_(evaluation.task == task, score.metric == metric) for task, metric in HEADLINES.values()))
    order = (case((named, 0), (score.metric.in_(METRICS), 1), else_=2), score.position, score.metric)
    ranked = (
        select(score, func.row_number().over(partition_by=score.evaluation_id, order_by=order).label("rank"))
        .join(evaluation, evaluation.id == score.evaluation_id)
        .join(tables.Checkpoint, tables.Checkpoint.id == evaluation.checkpoint_id)
        .where(tables.Checkpoint.project_id == project)
        .subquery()
    )
    rows = session.execute(
        select(
            ranked, evaluation.checkpoint_id, evaluation.run_id, evaluation.suite, evaluation.task, tables.Cycle.number
        )
        .join(evaluation, evaluation.id == ranked.c.evaluation_id)
        .outerjoin(tables.Run, tables.Run.id == evaluation.run_id)
        .outerjoin(tables.Cycle, tables.Cycle.id == tables.Run.cycle_id)
        .where(ranked.c.rank == 1, or_(evaluation.suite != "knowledge", ranked.c.metric != BITS))
        .order_by(evaluation.id)
    )
    return [
        (row.checkpoint_id, row.run_id, row.number, row.suite,
         views.Headline(row.value, row.n, row.stderr, row.low, row.high, row.task, row.metric))
        for row in rows
    ]  # fmt: skip
