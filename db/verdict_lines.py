"""A gate's verdict (docs/contracts.md) as one line a measure, for the command line, the dashboard and model cards."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

from db.headline_scores import MEASURES
from db.verdicts import cannot_be_missed, more_items

DIFFERENCES = ("behaviour", "retention")  # their judgements hold differences from the clean model
ITEMS = {"behaviour": "prompts", "knowledge": "items", "retention": "items on what it knew before"}
CLEARLY_BEYOND = 1.5  # times the limit: more items would tell such a loss from it
TOO_CLOSE = "too close to the limit to be decided by more of them"
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
    """Empty if there is no verdict, or one that judges no measure."""
    return [line for measure in MEASURES for line in _lines(verdict, measure)] if verdict else []


def status(judgement: Verdict) -> bool | None:
    """True: met, False: missed, None: too few items to decide."""
    return True if judgement.get("passed") else None if judgement.get("unsure") else False


def needed_text(judgement: Verdict, items: str) -> str:
    """How many items would decide it, where more than were asked would."""
    if (needed := more_items(judgement)) is None:
        return ""
    flag = f": --limit {limit}" if (limit := judgement.get("needed_limit")) else ""
    return f"about {needed:,} {items} would decide it ({judgement['n']:,} were used){flag}"


def _lines(verdict: Verdict, measure: str) -> Iterator[MeasureLine]:
    judgement, name = verdict.get(measure), MEASURES[measure]
    if measure == "earlier":
        cycles = (judgement or {}).items()
        if lines := [_line(measure, f"cycle {n}", of_cycle) for n, of_cycle in cycles if _has_numbers(of_cycle)]:
            yield _closest(lines, name)
    elif judgement and _has_numbers(judgement):
        yield _line(measure, name, judgement)._replace(details=tuple(_details(verdict, measure, judgement)))
    elif measure in verdict:
        has_none = measure == "knowledge" and judgement is None
        details = ("there are no questions on the documents (--questions)",) if has_none else ()
        yield MeasureLine(measure, name, None, "not judged", details=details)


def _has_numbers(judgement: Verdict) -> bool:
    """A score that is not finite, such as a correlation of equal answers, is stored as null."""
    return all(judgement[name] is not None and isfinite(judgement[name]) for name in ("value", "limit"))


def _line(measure: str, name: str, judgement: Verdict) -> MeasureLine:
    value, bound, limit, before = (judgement[key] for key in ("value", "bound", "limit", "before"))
    shown, passed = "" if before is None else f"{before:.3f}", status(judgement)
    if measure not in DIFFERENCES:
        after, limit_text = with_limit(value, limit, passed is True)
        return MeasureLine(measure, name, passed, WORDS[passed], shown, after, limit=limit_text)
    bound_text, limit_text = with_limit(bound + before, limit + before, passed is True)
    return MeasureLine(measure, name, passed, WORDS[passed], shown, f"{value + before:.3f}", bound_text, limit_text)


def _closest(lines: list[MeasureLine], name: str) -> MeasureLine:
    """All earlier cycles as the one that is furthest below its limit, or the least above it."""
    closest = min(lines, key=lambda line: (line.passed is True, float(line.after) - float(line.limit)))
    if len(lines) == 1:
        return closest._replace(name=name)
    others = [f"{line.name}: {line.before} → {line.after}, limit {line.limit}, {line.word}" for line in lines]
    return closest._replace(name=f"{name} ({closest.name} of {len(lines)})", details=tuple(others))


def _details(verdict: Verdict, measure: str, judgement: Verdict) -> Iterator[str]:
    yield from _items(judgement, ITEMS[measure].partition(" ")[0])
    if measure == "behaviour":
        yield from verdict.get("changes", ())
    if measure == "knowledge" and verdict.get("learned") is False:
        yield "the documents taught nothing measurable: the clean model knows at least as much of them"
    if measure == "retention":
        yield from losses(judgement.get("tasks", {}))
        if graded := judgement.get("graded"):
            yield f"left out, as their items have grades: {', '.join(graded)}"


def _items(judgement: Verdict, items: str) -> Iterator[str]:
    """How many were asked, why not all of them, and what more of them would decide."""
    n, of, is_open = judgement["n"], judgement.get("of"), status(judgement) is None
    if of and of > n:
        why = ", asked no further, as another limit was missed" if is_open else ", which decided"
        yield f"{n:,} of {of:,} {items}{'' if cannot_be_missed(judgement) else why}"
        return
    yield f"{n:,} {items}"
    if needed := needed_text(judgement, items):
        yield needed
    elif is_open and judgement.get("needed") is None and not cannot_be_missed(judgement):
        is_beyond = judgement["value"] < CLEARLY_BEYOND * judgement["limit"] < 0
        yield "more of them would probably show that it is missed" if is_beyond else TOO_CLOSE


def with_limit(value: float, limit: float, passed: bool) -> tuple[str, str]:
    """Both numbers with three decimals; if `value` failed, with as many as show that it differs from its limit."""
    texts = [(f"{value:.{n}f}", f"{limit:.{n}f}") for n in range(3, 7)]
    return texts[0] if passed else next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def losses(tasks: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The tasks that lost more items than they gained, the largest loss first."""
    net = {task: change["lost"] - change["gained"] for task, change in tasks.items()}
    worst_first = sorted((task for task in net if net[task] > 0), key=lambda task: -net[task])
    return [f"{task}: {tasks[task]['lost']:,} lost, {tasks[task]['gained'] or 'none'} gained" for task in worst_first]
