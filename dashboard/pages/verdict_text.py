"""A verdict as text: how a cycle ended, why, and how many items would have decided it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from dashboard.ui.components import Cell
from dashboard.ui.jinja import load
from db.tables import Checkpoint, Cycle, Promotion, promotion_against_gate
from db.verdicts import bound_and_margin, losses, relation, replies, with_limit

EARLIER_KNOWLEDGE = "earlier"  # key of a verdict, and name of the suite: questions on documents of earlier cycles
DECIDED_BY = {"behaviour": "prompts", "retention": "items on what it knew before"}
_OUTCOMES = {"promoted": "now the current model", "rejected": "not promoted; the previous model stays current"}
_html = load("overview.html")


class BoundSentence(NamedTuple):
    passed: bool | None  # None: undecided
    text: str


def bound_status(bound: dict[str, Any]) -> bool | None:
    """True: passed, False: failed, None: too few items to decide."""
    return True if bound.get("passed") else None if bound.get("unsure") else False


def needed_text(cycle: Cycle) -> str:
    """How many items would decide an inconclusive cycle, else an empty text."""
    if cycle.outcome != "inconclusive":
        return ""
    bounds = {items: _bound(cycle, name) for name, items in DECIDED_BY.items()}
    counts = {items: (bound.get("needed"), bound.get("n")) for items, bound in bounds.items() if bound.get("unsure")}
    texts = [
        f"about {needed:,} {items} would decide it ({used:,} were used)"
        for items, (needed, used) in counts.items()
        if isinstance(needed, int) and isinstance(used, int) and needed > used
    ]
    return "; ".join(texts)


def outcome_text(cycle: Cycle) -> str:
    return "; ".join(filter(None, [_OUTCOMES.get(cycle.status), needed_text(cycle)]))


def verdict_cell(cycle: Cycle) -> Cell:
    return Cell(_html.badge_with_note(cycle.outcome, needed_text(cycle)), "", cycle.outcome)


def reasons(cycle: Cycle) -> Markup:
    """One sentence for each condition of the gate, or the recorded reason where the numbers are missing."""
    reason = str((cycle.verdict or {}).get("reason") or "").rstrip(".")
    return _html.reasons(list(_sentences(cycle)), reason[:1].upper() + reason[1:])


def against_gate(newest_first: Sequence[Promotion], checkpoint: Checkpoint | None) -> Markup:
    """Who put a checkpoint into use against the gate, when and why; empty if nobody did."""
    promotion = promotion_against_gate(newest_first, checkpoint.id) if checkpoint else None
    return _html.against_gate(promotion) if promotion else Markup()


def earlier_bounds(cycle: Cycle) -> dict[str, dict[str, Any]]:
    """The condition on the knowledge of each earlier cycle's documents, by cycle number."""
    bounds = (cycle.verdict or {}).get(EARLIER_KNOWLEDGE)
    return {str(n): b for n, b in bounds.items() if isinstance(b, dict)} if isinstance(bounds, dict) else {}


def _sentences(cycle: Cycle) -> Iterator[BoundSentence]:
    behaviour = _difference_sentence(_bound(cycle, "behaviour"), "Instruction following", "prompts")
    if behaviour is None:
        return
    verdict = cycle.verdict or {}
    changes = str(verdict.get("changes") or "")[:500]
    yield behaviour._replace(text=f"{behaviour.text} {changes[:1].upper()}{changes[1:]}.") if changes else behaviour
    if "knowledge" in verdict:
        note = " Nothing measurable was learned from them." if verdict.get("learned") is False else ""
        yield _knowledge_sentence(_bound(cycle, "knowledge"), "Knowledge of the documents", note)
    for number, earlier in earlier_bounds(cycle).items():
        yield _knowledge_sentence(earlier, f"Knowledge of cycle {number[:20]}'s documents")
    retention = _bound(cycle, "retention")
    judged = _difference_sentence(retention, "What it knew before", "items", _losses(retention))
    yield judged or BoundSentence(None, "What it knew before was not measured, so it was not judged.")


def _difference_sentence(bound: dict[str, Any], name: str, items: str, changes: str = "") -> BoundSentence | None:
    value, low, limit = (_number(bound.get(key)) for key in ("value", "bound", "limit"))
    n = bound.get("n")
    if value is None or low is None or limit is None or not isinstance(n, int):
        return None
    worst, margin = bound_and_margin(low, limit, bound_status(bound) is True)
    of = bound.get("of")
    is_partial, is_open = isinstance(of, int) and of > n, bound_status(bound) is None
    why = "asked no further, as another limit had failed" if is_open else "which decided"
    asked = f"{n:,} of {of:,} {items}, {why}" if is_partial else f"{n:,} {items}"
    samples = bound.get("samples")
    asked += replies(samples) if isinstance(samples, int) else ""
    by = " by gate.keep_behaviour" if bound.get("setting") == "gate.keep_behaviour" else ""
    text = (
        f"{name} is {relation(value)} the clean model's{changes}, {worst} with 95 % confidence ({asked}); "
        f"the gate allows {margin}{by}."
    )
    if is_open and not is_partial:
        text += f" More {items} are needed to decide."
    return BoundSentence(bound_status(bound), text)


def _losses(retention: dict[str, Any]) -> str:
    """The tasks that lost items, in parentheses."""
    tasks = retention.get("tasks")
    changes = {
        str(task)[:60]: (change["lost"], change["gained"])
        for task, change in (tasks.items() if isinstance(tasks, dict) else ())
        if isinstance(change, dict) and all(isinstance(change.get(key), int) for key in ("lost", "gained"))
    }
    text = losses(changes)
    return f" ({text})" if text else ""


def _knowledge_sentence(bound: dict[str, Any], name: str, note: str = "") -> BoundSentence:
    value, limit = _number(bound.get("value")), _number(bound.get("limit"))
    if value is None or limit is None:
        return BoundSentence(None, f"{name} was not measured, so it was not judged.")
    status = bound_status(bound)
    measured, required = with_limit(value, limit, status is True)
    return BoundSentence(status, f"{name} is {measured}; the gate requires at least {required}.{note}")


def _bound(cycle: Cycle, name: str) -> dict[str, Any]:
    bound = (cycle.verdict or {}).get(name)
    return bound if isinstance(bound, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
