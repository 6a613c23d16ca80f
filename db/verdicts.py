"""A gate's verdict beside the decision that was made."""

from collections.abc import Mapping
from typing import Any

SWITCHED_OFF = 0.5  # a limit that asks for nothing


def gate_outcome(verdict: Mapping[str, Any] | None) -> str:
    """How the gate judged."""
    return str((verdict or {}).get("outcome", "failed"))


def overrules_gate(decision: str, verdict: Mapping[str, Any] | None) -> bool:
    """Whether a decision goes against the gate's verdict; never where there is none."""
    passed = (verdict or {}).get("passed")
    return isinstance(passed, bool) and passed != (decision == "promoted")


def cannot_be_missed(judgement: Mapping[str, Any]) -> bool:
    """Whether even a model that follows nothing would lose no more than the limit, unless a person has switched the
    limit off."""
    before, limit = judgement.get("before"), judgement.get("limit")
    if not isinstance(before, int | float) or not isinstance(limit, int | float):
        return False
    return before <= -limit < SWITCHED_OFF


def more_items(judgement: Mapping[str, Any]) -> int | None:
    """How many items would decide an open judgement, where that is more than were asked."""
    needed, used = judgement.get("needed"), judgement.get("n")
    if cannot_be_missed(judgement):
        return None
    is_more = judgement.get("unsure") and isinstance(needed, int) and isinstance(used, int) and needed > used
    return needed if is_more else None


def outcome_of(decision: str, reason: str | None, verdict: Mapping[str, Any] | None) -> str:
    """The decision; "inconclusive" where the gate rejected because it had too few items to decide.

    The gate decides with the reason of its verdict; a decision with another reason is a person's."""
    verdict = verdict or {}
    inconclusive = verdict.get("outcome") == "inconclusive" and verdict.get("reason") == reason
    return "inconclusive" if decision == "rejected" and inconclusive else decision
