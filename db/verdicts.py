"""A gate's verdict beside the decision that was made, and its numbers as text, for its reason and the dashboard."""

from collections.abc import Mapping
from typing import Any


def gate_outcome(verdict: Mapping[str, Any] | None) -> str:
    """How the gate judged."""
    return str((verdict or {}).get("outcome", "failed"))


def overrules_gate(decision: str, verdict: Mapping[str, Any] | None) -> bool:
    """Whether a decision goes against the gate's verdict; never where there is none."""
    passed = (verdict or {}).get("passed")
    return isinstance(passed, bool) and passed != (decision == "promoted")


def outcome_of(decision: str, reason: str | None, verdict: Mapping[str, Any] | None) -> str:
    """The decision; "inconclusive" where the gate rejected because it had too few items to decide.

    The gate decides with the reason of its verdict; a decision with another reason is a person's."""
    verdict = verdict or {}
    inconclusive = verdict.get("outcome") == "inconclusive" and verdict.get("reason") == reason
    return "inconclusive" if decision == "rejected" and inconclusive else decision


def relation(difference: float) -> str:
    if round(difference, 3) == 0:
        return "equal to"
    return f"{abs(difference):.3f} {'above' if difference > 0 else 'below'}"


def bound_and_margin(bound: float, limit: float, passed: bool) -> tuple[str, str]:
    """The bound of a difference as a phrase, and the loss that the gate allows."""
    loss, margin = with_limit(abs(bound), abs(limit), passed)
    if bound < 0:
        return f"at most {loss} below", margin
    return f"at least {loss} above" if round(bound, 3) else "not below", margin


def with_limit(value: float, limit: float, passed: bool) -> tuple[str, str]:
    """Both numbers with three decimals; if `value` failed, with as many as show that it differs from its limit."""
    texts = [(f"{value:.{n}f}", f"{limit:.{n}f}") for n in range(3, 7)]
    return texts[0] if passed else next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def replies(samples: int) -> str:
    """How many replies to each prompt a difference is the mean of, where it is not the greedy one alone."""
    sampled = "1 sampled reply" if samples == 1 else f"{samples} sampled replies"
    return f" with the greedy and {sampled} to each" if samples else ""


def losses(changes: Mapping[str, tuple[int, int]]) -> str:
    """The tasks that lost more items than they gained, the largest loss first; `changes` has both numbers by task."""
    net = {task: lost - gained for task, (lost, gained) in changes.items() if lost > gained}
    worst_first = sorted(net, key=lambda task: -net[task])
    return "; ".join(f"{task} {changes[task][0]:,} lost, {changes[task][1] or 'none'} gained" for task in worst_first)
