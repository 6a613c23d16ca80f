"""Store results in the record and load them by measurement key, so that nothing is measured twice."""

import math
from collections.abc import Iterable
from typing import Any

from db.tables import Checkpoint, Evaluation
from evals.results import Item, Metric, Result, Tokens
from pipelines.project.project import Project

KEY, COST = "measured", "cost"  # what the record keeps in an evaluation's settings besides the settings themselves


def store_results(
    project: Project, checkpoint: Checkpoint, run: int | None, key: str, results: Iterable[Result]
) -> None:
    """Store the results of a measurement key in one transaction, so that a stored key is always complete."""
    rows = [result.to_json(items=True) for result in results]
    with_key = [row | {"settings": row["settings"] | {KEY: key, COST: row["cost"]}} for row in rows]
    project.tracker.evaluations(checkpoint.id, run, with_key)


def stored_results(project: Project, checkpoint: Checkpoint, keys: set[str]) -> dict[str, list[Result]]:
    """The latest stored results by measurement key; keys without any are missing."""
    by_key: dict[str, dict[str, Evaluation]] = {}
    for evaluation in project.reader.evaluations(checkpoint.id):
        key = evaluation.settings.get(KEY)
        if key in keys:
            by_key.setdefault(key, {})[evaluation.task] = evaluation
    return {key: [as_result(project, e) for e in tasks.values()] for key, tasks in by_key.items()}


def copy_results(project: Project, source: Checkpoint, copy: Checkpoint) -> None:
    """Store a checkpoint's results under a copy of it, which has none yet."""
    by_key: dict[str, list[Evaluation]] = {}
    for evaluation in project.reader.evaluations(source.id):
        by_key.setdefault(evaluation.settings[KEY], []).append(evaluation)
    done = {evaluation.settings.get(KEY) for evaluation in project.reader.evaluations(copy.id)}
    for key in by_key.keys() - done:
        rows = by_key[key]
        store_results(project, copy, rows[0].run_id, key, [as_result(project, row) for row in rows])


def comparable_results(project: Project, checkpoint: Checkpoint, results: Iterable[Result]) -> list[Result]:
    """For each result, the checkpoint's stored result of the same task, data and settings with the most items, if
    there is one. Limit, part and blocks may differ; nothing is measured."""
    stored = project.reader.evaluations(checkpoint.id)
    largest = [max((e for e in stored if _method(e) == _method(r)), key=_size, default=None) for r in results]
    return [as_result(project, e) for e in largest if e is not None]


def _method(result: Result | Evaluation) -> tuple[Any, ...]:
    """How something was measured, apart from which items."""
    which = (KEY, COST, "limit", "part", "block", "of")
    settings = {name: value for name, value in result.settings.items() if name not in which}
    return result.suite, result.task, result.data, settings


def _size(e: Evaluation) -> tuple[int, int]:
    return max((score.n for score in e.scores.values()), default=0), e.id


def as_result(project: Project, e: Evaluation) -> Result:
    metrics = {
        name: Metric(_number(s.value), s.n, _number(s.stderr), (_number(s.low), _number(s.high)))
        for name, s in e.scores.items()
    }
    items = [
        Item(item.key, item.prompt, item.answer, bool(item.passed), item.verdicts or {})
        for item in project.reader.items(e.id)
    ]
    cost = e.settings.get(COST)
    tokens = Tokens(cost["tokens_read"], cost["tokens_written"]) if cost else None
    settings = {name: value for name, value in e.settings.items() if name not in (KEY, COST)}
    return Result(e.task, e.suite, e.data, metrics, items, settings, e.seconds, tokens)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
