"""Promote or reject: what must have come back, what must have been kept, and with what certainty."""

from dataclasses import asdict, dataclass
from typing import Any

from evals.results import Result
from evals.statistics import paired
from pipelines.settings import Gate


@dataclass(frozen=True)
class Judgement:
    """One bound: what was measured, the bound its uncertainty leaves, and the limit that bound must reach."""

    passed: bool
    value: float
    bound: float
    limit: float
    n: int
    needed: int | None = None  # items that would settle it, where what was seen lies within the limit and its bound not


@dataclass(frozen=True)
class Verdict:
    passed: bool
    behaviour: Judgement
    knowledge: Judgement | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    gate: Gate, clean: Result, recovered: Result, knowledge: Result | None, best_knowledge: float | None
) -> Verdict:
    """Behaviour against the clean model, item by item; knowledge against the best that was seen in this cycle."""
    behaviour = _behaviour(gate, clean, recovered)
    kept = _knowledge(gate, knowledge, best_knowledge) if knowledge and best_knowledge is not None else None
    reasons = [_say_behaviour(behaviour), _say_knowledge(kept)]
    return Verdict(behaviour.passed and (kept is None or kept.passed), behaviour, kept, "; ".join(reasons))


def _behaviour(gate: Gate, clean: Result, recovered: Result) -> Judgement:
    compared = paired(clean.passed_by_key(), recovered.passed_by_key())
    limit = -gate.behaviour_margin
    passed = compared.low > limit
    needed = None if passed else compared.n_needed(gate.behaviour_margin)
    return Judgement(passed, compared.difference, compared.low, limit, compared.n, needed)


def _knowledge(gate: Gate, knowledge: Result, best: float) -> Judgement:
    value = knowledge.headline.value
    limit = gate.keep_knowledge * best
    return Judgement(value >= limit, value, value, limit, knowledge.headline.n)


def _say_behaviour(b: Judgement) -> str:
    compared = (
        f"behaviour {b.value:+.3f} against the clean model (at least {b.bound:+.3f} with 95 % certainty, n = {b.n})"
    )
    unsure = (
        f" (too few items to be sure: about {b.needed} would do, see --limit)" if b.needed and b.needed > b.n else ""
    )
    return f"{compared}, {'within' if b.passed else 'short of'} the limit {b.limit:+.3f}{unsure}"


def _say_knowledge(k: Judgement | None) -> str:
    if k is None:
        return "knowledge was not measured, so only behaviour was judged (give --questions)"
    return f"knowledge {k.value:.3f}, {'at least' if k.passed else 'below'} the limit {k.limit:.3f}"
