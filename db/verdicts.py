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
    return passed is not None and passed != (decision == "promoted")


def cannot_be_missed(judgement: Mapping[str, Any]) -> bool:
    """Whether even a model that follows nothing would lose no more than the limit, unless a person has switched the
    limit off."""
    before = judgement.get("before")
    return before is not None and before <= -judgement["limit"] < SWITCHED_OFF


def more_items(judgement: Mapping[str, Any]) -> int | None:
    """How many items would decide an open judgement, where that is more than were asked."""
    needed = judgement.get("needed")
    if not needed or not judgement.get("unsure") or cannot_be_missed(judgement):
        return None
    return needed if needed > judgement["n"] else None


def outcome_of(decision: str, reason: str | None, verdict: Mapping[str, Any] | None) -> str:
    """The decision; "inconclusive" where the gate rejected because it had too few items to decide.

    The gate decides with the reason of its verdict; a decision with another reason is a person's."""
    verdict = verdict or {}
    inconclusive = verdict.get("outcome") == "inconclusive" and verdict.get("reason") == reason
    return "inconclusive" if decision == "rejected" and inconclusive else decision
