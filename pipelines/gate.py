"""Promote or reject: what must have come back, what must have been kept, and with what certainty."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from evals.results import Result
from evals.stats.paired_tests import paired_test
from pipelines.settings import Gate
from recovery.errors import RecoverError


@dataclass(frozen=True)
class Judgement:
    """One bound: what was measured, the bound its uncertainty leaves, and the limit that bound must reach."""

    passed: bool
    value: float
    bound: float
    limit: float
    n: int
    needed: int | None = None  # items that would settle it, where what was seen lies within the limit and its bound not
    unsure: bool = False  # neither shown to be within the limit nor beyond it


@dataclass(frozen=True)
class Verdict:
    passed: bool
    outcome: str  # "passed", "failed", or "inconclusive": too few items to tell
    behaviour: Judgement
    knowledge: Judgement | None
    reason: str
    earlier: dict[int, Judgement] = field(default_factory=dict)  # by cycle

    def put(self, promoted: bool) -> str:
        """What came of it, in a word or two: a model that may be good enough is not told to have failed."""
        unsure = self.outcome == "inconclusive"
        return "promoted" if promoted else "inconclusive, so not promoted" if unsure else "rejected"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"earlier": {str(cycle): asdict(j) for cycle, j in self.earlier.items()}}


def judge(
    gate: Gate,
    clean: Result,
    recovered: Result,
    knowledge: Result | None,
    best_knowledge: float | None,
    earlier: Mapping[int, tuple[Result, float]] | None = None,
) -> Verdict:
    """Behaviour against the clean model, item by item; knowledge against the best that was seen in this cycle.

    `earlier` has, for each earlier cycle, what is known of its documents now and what that cycle ended with."""
    must_pass_or_fail(clean)
    must_pass_or_fail(recovered)
    behaviour = _behaviour(gate, clean, recovered)
    kept = _kept(knowledge, gate.keep_knowledge, best_knowledge) if knowledge and best_knowledge is not None else None
    held = {cycle: _kept(now, gate.keep_earlier, then) for cycle, (now, then) in (earlier or {}).items()}
    all_kept = [j for j in (kept, *held.values()) if j is not None]
    passed = behaviour.passed and all(j.passed for j in all_kept)
    unsure = behaviour.unsure and all(j.passed for j in all_kept)
    reasons = [_say_behaviour(behaviour), _say_knowledge(kept), *(_say_earlier(c, j) for c, j in held.items())]
    outcome = "passed" if passed else "inconclusive" if unsure else "failed"
    return Verdict(passed, outcome, behaviour, kept, "; ".join(reasons), held)


def must_pass_or_fail(behaviour: Result | None) -> None:
    """By pairs of passes a graded task would promote any model: no item that never passed is ever lost."""
    if behaviour is not None and not behaviour.is_pass_rate:
        raise RecoverError(
            f"{behaviour.task} is graded, not passed or failed, so the gate cannot judge by it: name a task whose "
            "items pass or fail under suites in recover.json"
        )


def _behaviour(gate: Gate, clean: Result, recovered: Result) -> Judgement:
    compared = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    limit = -gate.behaviour_margin
    passed = compared.low > limit
    needed = None if passed else compared.n_needed(gate.behaviour_margin)
    unsure = not passed and compared.high > limit
    return Judgement(passed, compared.difference, compared.low, limit, compared.n, needed, unsure)


def _kept(knowledge: Result, share: float, best: float) -> Judgement:
    value, limit = knowledge.headline.value, share * best
    return Judgement(value >= limit, value, value, limit, knowledge.headline.n)


def _say_behaviour(b: Judgement) -> str:
    compared = (
        f"behaviour {b.value:+.3f} against the clean model (at least {b.bound:+.3f} with 95 % certainty, n = {b.n})"
    )
    if b.passed:
        return f"{compared}, within the limit {b.limit:+.3f}"
    more = f": about {b.needed} would do, see --limit" if b.needed and b.needed > b.n else ""
    unsure = f" (too few items to tell{more})" if b.unsure else ""
    return f"{compared}, short of the limit {b.limit:+.3f} by {b.limit - b.bound:.3f}{unsure}"


def _say_knowledge(k: Judgement | None) -> str:
    if k is None:
        return "knowledge was not measured, so only behaviour was judged (give --questions)"
    return f"knowledge {k.value:.3f}, {_against(k)}"


def _say_earlier(cycle: int, k: Judgement) -> str:
    return f"knowledge of cycle {cycle} {k.value:.3f}, {_against(k)}"


def _against(k: Judgement) -> str:
    return (
        f"at least the limit {k.limit:.3f}" if k.passed else f"below the limit {k.limit:.3f} by {k.limit - k.value:.3f}"
    )
