"""A verdict as text: how a cycle ended, why, and how many prompts would have decided it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from dashboard.ui.components import Cell
from dashboard.ui.jinja import load
from db.verdict_phrases import bound_and_margin, relation, with_limit
from db.views import Checkpoint, Cycle, Promotion, promotion_against_gate

EARLIER_KNOWLEDGE = "earlier"  # key of a verdict, and name of the suite: questions on documents of earlier cycles
_OUTCOMES = {"promoted": "now the current model", "rejected": "not promoted; the previous model stays current"}
_html = load("overview.html")


class BoundSentence(NamedTuple):
    passed: bool | None  # None: undecided
    text: str


def bound_status(bound: dict[str, Any]) -> bool | None:
    """True: passed, False: failed, None: too few items to decide."""
    return True if bound.get("passed") else None if bound.get("unsure") else False


def needed_text(cycle: Cycle) -> str:
    """How many prompts would decide an inconclusive cycle, else an empty text."""
    behaviour = _bound(cycle, "behaviour")
    needed, used = behaviour.get("needed"), behaviour.get("n")
    if cycle.outcome != "inconclusive" or not isinstance(needed, int) or not isinstance(used, int):
        return ""
    return f"about {needed:,} prompts would decide it ({used:,} were used)"


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
    behaviour = _bound(cycle, "behaviour")
    value, bound, limit = (_number(behaviour.get(name)) for name in ("value", "bound", "limit"))
    n, of = behaviour.get("n"), behaviour.get("of")
    if value is None or bound is None or limit is None or not isinstance(n, int):
        return
    worst, margin = bound_and_margin(bound, limit, bound_status(behaviour) is True)
    prompts = f"{n:,} of {of:,} prompts, which decided" if isinstance(of, int) and of > n else f"{n:,} prompts"
    text = (
        f"Instruction following is {relation(value)} the clean model's, {worst} with 95 % confidence ({prompts}); "
        f"the gate allows {margin}."
    )
    if bound_status(behaviour) is None:
        text += " More prompts are needed to decide."
    yield BoundSentence(bound_status(behaviour), text)
    verdict = cycle.verdict or {}
    if "knowledge" in verdict:
        note = " Nothing measurable was learned from them." if verdict.get("learned") is False else ""
        yield _knowledge_sentence(_bound(cycle, "knowledge"), "Knowledge of the documents", note)
    for number, earlier in earlier_bounds(cycle).items():
        yield _knowledge_sentence(earlier, f"Knowledge of cycle {number[:20]}'s documents")


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
