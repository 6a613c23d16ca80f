"""Measurements on record, found again by their key, so that nothing is measured twice."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from db.views import Checkpoint, Evaluation
from evals.results import Item, Metric, Result, Tokens
from pipelines.project.project import Project

BESIDE = ("measured", "cost")  # what the record keeps among the settings of a measurement, and is none


def put_on_record(project: Project, checkpoint: Checkpoint, run: int, found: Mapping[str, list[Result]]) -> None:
    """Results by key, written in one go: what is there of a key is all of it."""
    told: list[dict[str, Any]] = []
    for key, results in found.items():
        for result in results:
            said = result.to_json(items=True)
            told.append(said | {"settings": said["settings"] | {"measured": key, "cost": said["cost"]}})
    project.tracker.evaluations(checkpoint.id, run, told)


def on_record(project: Project, checkpoint: Checkpoint, keys: set[str]) -> dict[str, list[Result]]:
    """The latest measurements with these keys."""
    found: dict[str, dict[str, Evaluation]] = {}
    for evaluation in project.reader.evaluations(checkpoint.id):
        key = evaluation.settings.get("measured")
        if key in keys:
            found.setdefault(key, {})[evaluation.task] = evaluation
    return {key: [_as_result(project, e) for e in tasks.values()] for key, tasks in found.items()}


def alike(project: Project, checkpoint: Checkpoint, asked: Iterable[Result]) -> list[Result]:
    """For each of these, the largest measurement of the checkpoint that asked in the same way, be it of more items or
    of fewer; none is made for it."""
    known = project.reader.evaluations(checkpoint.id)
    found = [max((e for e in known if _way(e) == _way(each)), key=_size, default=None) for each in asked]
    return [_as_result(project, e) for e in found if e is not None]


def _way(asked: Result | Evaluation) -> tuple[Any, ...]:
    settings = {name: value for name, value in asked.settings.items() if name not in (*BESIDE, "limit", "part")}
    return asked.suite, asked.task, asked.data, settings


def _size(e: Evaluation) -> tuple[int, int]:
    return max((score.n for score in e.scores.values()), default=0), e.id


def _as_result(project: Project, e: Evaluation) -> Result:
    metrics = {
        name: Metric(_number(s.value), s.n, _number(s.stderr), (_number(s.low), _number(s.high)))
        for name, s in e.scores.items()
    }
    items = [
        Item(item.key, item.prompt, item.answer, bool(item.passed), item.verdicts or {})
        for item in project.reader.items(e.id)
    ]
    cost = e.settings.get("cost")
    tokens = Tokens(cost["tokens_read"], cost["tokens_written"]) if cost else None
    settings = {name: value for name, value in e.settings.items() if name not in BESIDE}
    return Result(e.task, e.suite, e.data, metrics, items, settings, e.seconds, tokens)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
