"""Scores of several checkpoints on the items that all of them answered: others cannot be subtracted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dashboard.pages.compare import instructions, is_graded
from dashboard.ui.charts.cycles import Level
from db.queries import Reader
from db.tables import Evaluation


class Shared(NamedTuple):
    values: list[float]
    passes: list[dict[str, bool | None]]  # empty where items have grades
    n: int | None  # of the items, where not all checkpoints were measured on the same ones


def on_shared_items(reader: Reader, levels: Sequence[Level | None]) -> Shared | None:
    """None where one was not measured, where they share no items, and where grades are of different items."""
    known = [level for level in levels if level is not None]
    ids = [level.evaluation for level in known if level.evaluation is not None]
    if not ids or len(ids) < len(levels) or len({reader.task(id) for id in ids}) > 1:
        return None
    passes = [reader.passes(id) for id in ids]
    graded = any(is_graded(level.value, of.values()) for level, of in zip(known, passes, strict=True))
    if len({level.n for level in known}) == 1 and all(of.keys() == passes[0].keys() for of in passes):
        return Shared([level.value for level in known], [] if graded else passes, None)
    keys = [key for key in passes[0] if all(of.get(key) is not None for of in passes)]
    if graded or not keys:
        return None
    shared = [{key: of[key] for key in keys} for of in passes]
    return Shared([sum(map(bool, of.values())) / len(keys) for of in shared], shared, len(keys))


def changes_by_kind(reader: Reader, before: Evaluation | None, after: Evaluation | None) -> dict[str, float]:
    """By kind of instruction: how much more of them an evaluation followed than another, on the shared prompts."""
    if before is None or after is None or before.content != after.content:
        return {}
    was, now = reader.verdicts(before.id), reader.verdicts(after.id)
    shares = [_followed([side[key] for key in was if key in now]) for side in (was, now)]
    return {kind: shares[1][kind] - share for kind, share in shares[0].items() if kind in shares[1]}


def _followed(verdicts: Sequence[object]) -> Mapping[str, float]:
    by_kind: dict[str, list[bool]] = {}
    for name, followed in (pair for of_item in verdicts for pair in instructions(of_item)):
        for kind in {name, name.partition(":")[0]}:
            by_kind.setdefault(kind, []).append(followed)
    return {kind: sum(of) / len(of) for kind, of in by_kind.items()}
