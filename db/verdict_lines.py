"""A gate's verdict as one line a measure, for the command line, the dashboard and model cards.

It is read from the record, where any value may be missing or of another kind."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from db.headline_scores import MEASURES
from db.verdicts import cannot_be_missed, more_items

DIFFERENCES = ("behaviour", "retention")  # their judgements hold differences from the clean model
ITEMS = {"behaviour": "prompts", "retention": "items on what it knew before"}
WORDS = {True: "met", False: "missed", None: "not decided"}
Verdict = Mapping[str, Any]


class MeasureLine(NamedTuple):
    """One measure: its scores, the lower bound of the last one, and the limit for it, all as text."""

    measure: str
    name: str
    passed: bool | None  # None: not decided, or not judged
    word: str
    before: str = ""  # of the clean model; of an earlier cycle, at its end
    after: str = ""
    bound: str = ""  # with 95 % confidence; empty where the score itself is compared
    limit: str = ""
    details: tuple[str, ...] = ()

    @property
    def is_judged(self) -> bool:
        return bool(self.limit)


def measure_lines(verdict: Verdict | None) -> list[MeasureLine]:
    """Empty if there is no verdict, or one without its numbers."""
    if not verdict or not _is_judgement(verdict.get("behaviour")):
        return []
    return [line for measure in MEASURES for line in _lines(verdict, measure)]


def status(judgement: Verdict) -> bool | None:
    """True: met, False: missed, None: too few items to decide."""
    return True if judgement.get("passed") else None if judgement.get("unsure") else False


def needed_text(judgement: Verdict, items: str) -> str:
    """How many items would decide it, where more than were asked would."""
    if (needed := more_items(judgement)) is None:
        return ""
    limit = judgement.get("needed_limit")
    flag = f": --limit {limit}" if isinstance(limit, int) else ""
    return f"about {needed:,} {items} would decide it ({judgement['n']:,} were used){flag}"


def _lines(verdict: Verdict, measure: str) -> Iterator[MeasureLine]:
    judgement, name = verdict.get(measure), MEASURES[measure]
    if measure == "earlier":
        cycles = judgement if isinstance(judgement, Mapping) else {}
        lines = [_line(measure, f"cycle {str(n)[:20]}", j) for n, j in cycles.items() if _is_judgement(j)]
        if lines:
            yield _closest(lines, name)
    elif isinstance(judgement, Mapping) and _is_judgement(judgement):
        yield _line(measure, name, judgement)._replace(details=tuple(_details(verdict, measure, judgement)))
    elif measure in verdict:
        missing = ("there are no questions on the documents (--questions)",) if measure == "knowledge" else ()
        yield MeasureLine(measure, name, None, "not judged", details=missing)


def _is_judgement(value: object) -> bool:
    return isinstance(value, Mapping) and all(_number(value.get(key)) is not None for key in ("value", "limit"))


def _line(measure: str, name: str, judgement: Verdict) -> MeasureLine:
    value, limit, before = (_number(judgement.get(key)) for key in ("value", "limit", "before"))
    assert value is not None
    assert limit is not None
    start = before or 0.0
    bound = _number(judgement.get("bound")) if measure in DIFFERENCES else None
    if measure in DIFFERENCES:
        value, limit, bound = value + start, limit + start, value if bound is None else bound + start
    passed = status(judgement)
    compared, limit_text = with_limit(value if bound is None else bound, limit, passed is True)
    after = f"{value:.3f}" if bound is not None else compared
    shown = "" if before is None else f"{before:.3f}"
    return MeasureLine(
        measure, name, passed, WORDS[passed], shown, after, compared if bound is not None else "", limit_text
    )


def _closest(lines: list[MeasureLine], name: str) -> MeasureLine:
    """All earlier cycles as the one that is furthest below its limit, or the least above it."""
    closest = min(lines, key=lambda line: (line.passed is True, float(line.after) - float(line.limit)))
    if len(lines) == 1:
        return closest._replace(name=name)
    others = [f"{line.name}: {line.before} → {line.after}, limit {line.limit}, {line.word}" for line in lines]
    return closest._replace(name=f"{name} ({closest.name} of {len(lines)})", details=tuple(others))


def _details(verdict: Verdict, measure: str, judgement: Verdict) -> Iterator[str]:
    if isinstance(n := judgement.get("n"), int):
        yield from _items(judgement, n, "questions" if measure == "knowledge" else ITEMS[measure].partition(" ")[0])
    if measure == "behaviour" and isinstance(changes := verdict.get("changes"), list | tuple):
        yield from (str(line)[:300] for line in changes[:4])
    if measure == "knowledge" and verdict.get("learned") is False:
        yield "the documents taught nothing measurable: the clean model knows at least as much of them"
    if measure == "retention":
        yield from losses(judgement.get("tasks"))
        graded = judgement.get("graded")
        if isinstance(graded, list | tuple) and graded:
            yield f"left out, as their items have grades: {', '.join(str(task)[:60] for task in graded)}"


def _items(judgement: Verdict, n: int, items: str) -> Iterator[str]:
    """How many were asked, why not all of them, and what more of them would decide."""
    of, is_open = judgement.get("of"), status(judgement) is None
    if isinstance(of, int) and of > n:
        why = ", asked no further, as another limit was missed" if is_open else ", which decided"
        yield f"{n:,} of {of:,} {items}{'' if cannot_be_missed(judgement) else why}"
        return
    yield f"{n:,} {items}"
    if needed := needed_text(judgement, items):
        yield needed
    elif is_open and judgement.get("needed") is None and not cannot_be_missed(judgement):
        yield "too close to the limit to be decided by more of them"


def with_limit(value: float, limit: float, passed: bool) -> tuple[str, str]:
    """Both numbers with three decimals; if `value` failed, with as many as show that it differs from its limit."""
    texts = [(f"{value:.{n}f}", f"{limit:.{n}f}") for n in range(3, 7)]
    return texts[0] if passed else next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def losses(tasks: object) -> list[str]:
    """The tasks that lost more items than they gained, the largest loss first."""
    changes = {
        str(task)[:60]: (change["lost"], change["gained"])
        for task, change in (tasks.items() if isinstance(tasks, Mapping) else ())
        if isinstance(change, Mapping) and all(isinstance(change.get(key), int) for key in ("lost", "gained"))
    }
    net = {task: lost - gained for task, (lost, gained) in changes.items() if lost > gained}
    worst_first = sorted(net, key=lambda task: -net[task])
    return [f"{task}: {changes[task][0]:,} lost, {changes[task][1] or 'none'} gained" for task in worst_first]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
