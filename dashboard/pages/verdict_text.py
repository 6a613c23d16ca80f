"""What a verdict comes to, in words: how a cycle ended, why, and what would have settled it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dashboard.ui.components import Cell, badge, tick
from dashboard.ui.layout import shown
from db.views import Cycle


class Why(NamedTuple):
    """One bound of the gate: held, missed, or (None) neither for certain."""

    held: bool | None
    words: str


def held(bound: dict[str, Any]) -> bool | None:
    return True if bound.get("passed") else None if bound.get("unsure") else False


def needed(cycle: Cycle) -> str:
    """How many prompts would settle what could not be told."""
    behaviour = _bound(cycle, "behaviour")
    items, asked = behaviour.get("needed"), behaviour.get("n")
    known = cycle.outcome == "inconclusive" and isinstance(items, int) and isinstance(asked, int)
    return f"about {items:,} prompts would settle it ({asked:,} were asked)" if known else ""


def followed(cycle: Cycle) -> str:
    """What came of the verdict."""
    came_of = {"promoted": "became the model in use", "rejected": "not promoted, the model from before stays in use"}
    return "; ".join(filter(None, [came_of.get(cycle.status), needed(cycle)]))


def badge_of(cycle: Cycle) -> str:
    return badge(cycle.outcome)


def cell_of(cycle: Cycle) -> Cell:
    more = f"<br><small>{items}</small>" if (items := needed(cycle)) else ""
    return Cell(badge_of(cycle) + more, "", cycle.outcome)


def reasons(cycle: Cycle) -> str:
    """Each bound in a sentence with its sign, or the gate's own words where its numbers are not on record."""
    told = list(_reasons(cycle))
    if told:
        lines = "".join(f"<li>{tick(why.held)} <span>{why.words}</span></li>" for why in told)
        return f'<ul class="why">{lines}</ul>'
    reason = (cycle.verdict or {}).get("reason")
    return f"<p>{_capital(shown(reason, 500))}.</p>" if reason else ""


def _reasons(cycle: Cycle) -> Iterator[Why]:
    behaviour = _bound(cycle, "behaviour")
    value, bound, limit = (_number(behaviour.get(name)) for name in ("value", "bound", "limit"))
    n = behaviour.get("n")
    if value is None or bound is None or limit is None or not isinstance(n, int):
        return
    certain = "surely above it" if bound >= 0 else f"at worst {-bound:.3f} below (95 %, {n:,} prompts)"
    words = f"Instruction following is {_apart(value)} the clean model, {certain}; the gate allows {-limit:.3f}."
    if held(behaviour) is None:
        words += " That is too few prompts to tell."
    yield Why(held(behaviour), words)
    if "knowledge" in (cycle.verdict or {}):
        yield _kept(_bound(cycle, "knowledge"), "Knowledge of the documents")
    for number, of_cycle in earlier_bounds(cycle).items():
        yield _kept(of_cycle, f"Knowledge of cycle {shown(number, 20)}'s documents")


def _kept(bound: dict[str, Any], what: str) -> Why:
    value, limit = _number(bound.get("value")), _number(bound.get("limit"))
    if value is None or limit is None:
        return Why(None, f"{what} was not measured, so it was not judged.")
    return Why(held(bound), f"{what} is {value:.3f}; at least {limit:.3f} had to be kept.")


def earlier_bounds(cycle: Cycle) -> dict[str, dict[str, Any]]:
    """By cycle, the bound on what its documents' knowledge had to stay."""
    told = (cycle.verdict or {}).get("earlier")
    return {str(n): b for n, b in told.items() if isinstance(b, dict)} if isinstance(told, dict) else {}


def _bound(cycle: Cycle, name: str) -> dict[str, Any]:
    told = (cycle.verdict or {}).get(name)
    return told if isinstance(told, dict) else {}


def _apart(value: float) -> str:
    if round(value, 3) == 0:
        return "level with"
    return f"{abs(value):.3f} {'above' if value > 0 else 'below'}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _capital(text: str) -> str:
    inside = text.removeprefix("<bdi>").removesuffix("</bdi>").rstrip(".")
    return f"<bdi>{inside[:1].upper()}{inside[1:]}</bdi>"
