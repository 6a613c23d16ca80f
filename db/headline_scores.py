"""The headlines of a checkpoint: one score for each of the four measures.

Instruction following and new knowledge are one metric of one task: of the headline task where that was measured, else
of the first task of the latest measurement (a project may be measured by its own tasks). What the model knew before is
pooled over all tasks of the latest measurement, knowledge of earlier cycles over the latest one of each. A task's
headline is its headline metric, else its first.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import JSON, and_, case, func, or_, select, type_coerce
from sqlalchemy.orm import Session

from db.tables import Checkpoint, Cycle, Evaluation, Headline, Run, Score, Stage

MEASURES = {  # by suite, their names for people
    "behaviour": "instruction following",
    "knowledge": "new knowledge",
    "earlier": "earlier cycles",
    "retention": "what it knew before",
}
HEADLINES = {  # suite: (task, metric)
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
}
POOLED = ("earlier", "retention")
LOWER_IS_BETTER = "lower_is_better"  # a setting of evaluations: their task is never the headline of its suite
PROBE = "probe"  # the part of a suite's items that decides when a distillation ends
_SETTINGS = type_coerce(Evaluation.settings, JSON)
IS_NO_PROBE = func.coalesce(_SETTINGS["part"].as_string(), "") != PROBE


class SuiteScore(NamedTuple):
    """A score that may stand for its suite."""

    checkpoint: int
    run: int | None
    cycle: int | None  # number of the cycle it was measured in
    suite: str
    score: Headline

    @property
    def is_of_headline_task(self) -> bool:
        return self.suite in HEADLINES and HEADLINES[self.suite][0] == self.score.task

    @property
    def pool(self) -> tuple[Any, ...] | None:
        """What the tasks of a pooled suite have in common: their run, but each earlier cycle's questions are stored by
        themselves, and an interrupted measurement of them goes on in another run."""
        if self.suite not in POOLED or self.run is None:
            return None
        return self.checkpoint, self.cycle, self.suite, None if self.suite == "earlier" else self.run


def suite_scores(session: Session, project: int) -> dict[int, list[SuiteScore]]:
    """By checkpoint, all scores that may stand for a suite; later ones take precedence."""
    by_checkpoint: dict[int, list[SuiteScore]] = defaultdict(list)
    measurements: set[tuple[int, int | None, str]] = set()
    scores = _pooled(_first_scores(session, project))
    for score in sorted(scores, key=lambda score: score.is_of_headline_task):
        measurement = (score.checkpoint, score.run, score.suite)
        if score.run is not None and measurement in measurements and not score.is_of_headline_task:
            continue  # only the first task of a measurement counts
        measurements.add(measurement)
        by_checkpoint[score.checkpoint].append(score)
    return by_checkpoint


def stage(
    checkpoint: Checkpoint | None,
    scores: dict[int, list[SuiteScore]],
    cycle: int | None = None,
    used: Mapping[str, Headline] = {},
) -> Stage:
    """A checkpoint with its latest headlines, by what the given cycle used: what it measured itself, then what is of
    the same items as the scores of its other checkpoints (`used`)."""
    if checkpoint is None:
        return Stage()

    def order(measured: SuiteScore) -> tuple[Any, ...]:
        rank, own, other = precedence(measured.cycle, cycle), measured.score, used.get(measured.suite)
        same_data = other and (own.task, own.data, own.content) == (other.task, other.data, other.content)
        return rank > 1, bool(same_data), bool(other and own.items == other.items), rank

    ordered = sorted(scores.get(checkpoint.id, []), key=order)
    return Stage(checkpoint, {measured.suite: measured.score for measured in ordered if measured.suite in MEASURES})


def precedence(measured_in: int | None, cycle: int | None) -> int:
    """Of a measurement of a checkpoint, for a cycle: its own, then those of cycles before it, which it may have taken
    over, then all others."""
    return 0 if measured_in is None or cycle is None or measured_in > cycle else 1 + (measured_in == cycle)


def headline(evaluation: Evaluation | None) -> Score | None:
    """The score that stands for one evaluation."""
    if evaluation is None:
        return None
    metric = dict(HEADLINES.values()).get(evaluation.task, "")
    return evaluation.scores.get(metric) or next(iter(evaluation.scores.values()), None)


def _pooled(scores: Iterable[SuiteScore]) -> Iterator[SuiteScore]:
    """The scores, with those of one measurement of a pooled suite as one, in the place of the last of them."""
    pools: dict[object, list[SuiteScore]] = {}
    for index, score in enumerate(scores):
        key = score.pool or index
        pools[key] = [*pools.pop(key, []), score]  # popped first, so that it moves to the end
    for pool in pools.values():
        by_task = {score.score.task: score.score for score in pool}
        yield pool[-1]._replace(score=_pooled_score(list(by_task.values())))


def _pooled_score(scores: list[Headline]) -> Headline:
    """The share of all items that passed; tasks with grades instead of passes are left out if there are others."""
    passes = [score for score in scores if _is_pass_rate(score)]
    if len(scores) == 1 or not passes:
        return scores[0]
    n = sum(score.n for score in passes)
    share = sum((score.value or 0.0) * score.n for score in passes) / n
    low, high = _wilson(share, n)
    tasks = ", ".join(score.task for score in passes)
    items = tuple(score.items for score in sorted(passes, key=lambda score: score.task))
    return replace(passes[0], value=share, n=n, low=low, high=high, task=tasks, items=items)


def _is_pass_rate(score: Headline) -> bool:
    """Whether the value is a whole number of passes by the number of items; hardly any mean of grades is."""
    if score.value is None or not 0 <= score.value <= 1 or not score.n:
        return False
    passes = score.value * score.n
    return math.isclose(passes, round(passes), abs_tol=1e-6)


def _wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n items, as `evals.stats.paired_comparison.wilson`."""
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _first_scores(session: Session, project: int) -> list[SuiteScore]:
    """The headline of each evaluation, oldest first.

    A metric of which less is better is no score (`Result.is_share`), and no verdict is about the items of probes.
    """
    is_headline = or_(*(and_(Evaluation.task == task, Score.metric == metric) for task, metric in HEADLINES.values()))
    order = (case((is_headline, 0), else_=1), Score.position, Score.metric)
    ranked = (
        select(Score, func.row_number().over(partition_by=Score.evaluation_id, order_by=order).label("rank"))
        .join(Evaluation, Evaluation.id == Score.evaluation_id)
        .join(Checkpoint, Checkpoint.id == Evaluation.checkpoint_id)
        .where(Checkpoint.project_id == project)
        .subquery()
    )
    rows = session.execute(
        select(
            ranked,
            Evaluation.checkpoint_id,
            Evaluation.run_id,
            Evaluation.suite,
            Evaluation.task,
            Evaluation.data,
            _SETTINGS["content"].as_string().label("content"),
            _SETTINGS["part"].as_string().label("part"),
            _SETTINGS["of"].as_integer().label("prompts"),
            Cycle.number,
        )
        .join(Evaluation, Evaluation.id == ranked.c.evaluation_id)
        .outerjoin(Run, Run.id == Evaluation.run_id)
        .outerjoin(Cycle, Cycle.id == Run.cycle_id)
        .where(ranked.c.rank == 1, _SETTINGS[LOWER_IS_BETTER].as_string().is_(None), IS_NO_PROBE)
        .order_by(Evaluation.id)
    )
    return [
        SuiteScore(row.checkpoint_id, row.run_id, row.number, row.suite, Headline(
            row.value, row.n, row.low, row.high, row.task, row.evaluation_id, row.data, row.content,
            (row.task, row.content or row.data, row.part, row.n, row.prompts or row.n),
        ))
        for row in rows
    ]  # fmt: skip
