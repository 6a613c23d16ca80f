"""The gate: decide whether a recovered checkpoint may replace the current one, and say why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from db.verdict_phrases import bound_and_margin, relation, with_limit
from evals.results import Item, Result, main_result
from evals.stats.sequential import sequential_test
from pipelines.settings.schema import Gate
from recovery.errors import RecoverError


@dataclass(frozen=True)
class Judgement:
    """One criterion: the measured value, its confidence bound, and the limit that the bound must not fall below."""

    passed: bool
    value: float
    bound: float
    limit: float
    n: int
    needed: int | None = None  # items that would be enough, had `value` been measured on them; None if no number would
    unsure: bool = False  # neither within nor beyond the limit with 95 % confidence
    of: int | None = None  # items that could have been asked: more than `n` where the verdict was clear before
    differ: float | None = None  # share of the items that only one of the two models passes


@dataclass(frozen=True)
class Verdict:
    passed: bool
    outcome: str  # "passed", "failed", or "inconclusive": too few items to tell
    behaviour: Judgement
    knowledge: Judgement | None
    reason: str
    earlier: dict[int, Judgement] = field(default_factory=dict)  # knowledge of earlier cycles, by cycle number
    learned: bool | None = None  # whether the cycle's best knowledge is above the clean model's; None: not measured

    def decision_text(self, promoted: bool) -> str:
        if promoted:
            return "promoted"
        return "inconclusive, so not promoted" if self.outcome == "inconclusive" else "rejected"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"earlier": {str(cycle): asdict(j) for cycle, j in self.earlier.items()}}


def judge(
    gate: Gate,
    clean: Result,
    recovered: Result,
    knowledge: Result | None,
    best_knowledge: float | None,
    earlier: Mapping[int, tuple[Result, float]] | None = None,
    clean_knowledge: float | None = None,
) -> Verdict:
    """Judge a recovered checkpoint.

    Its behaviour result is compared with the clean model's, item by item; its knowledge with the best of the cycle.
    `earlier` has, for each earlier cycle, the result on its questions now and the score that the cycle ended with.
    The reason says so where the best knowledge is no better than the clean model's."""
    require_pass_fail(clean)
    require_pass_fail(recovered)
    behaviour = _judge_behaviour(gate, clean, recovered)
    retained, learned = None, None
    if knowledge is not None and best_knowledge is not None:
        retained = _judge_knowledge(knowledge, gate.keep_knowledge, best_knowledge)
        learned = best_knowledge > clean_knowledge if clean_knowledge is not None else None
    note = ", and the documents taught nothing measurable: the clean model knows at least as much of them"
    retained_earlier = {
        cycle: _judge_knowledge(now, gate.keep_earlier, score) for cycle, (now, score) in (earlier or {}).items()
    }
    knowledge_passed = all(j.passed for j in (retained, *retained_earlier.values()) if j is not None)
    passed = behaviour.passed and knowledge_passed
    unsure = behaviour.unsure and knowledge_passed
    reasons = [_behaviour_reason(behaviour), _knowledge_reason("the documents", retained)]
    reasons[1] += note if learned is False else ""
    reasons += [_knowledge_reason(f"cycle {cycle}", j) for cycle, j in retained_earlier.items()]
    outcome = "passed" if passed else "inconclusive" if unsure else "failed"
    return Verdict(passed, outcome, behaviour, retained, "; ".join(reasons), retained_earlier, learned)


def is_clear(gate: Gate, clean: list[Result], items: list[Item]) -> bool:
    """Whether these items of a recovered checkpoint, asked in blocks, show a loss within or beyond the margin."""
    main = main_result(clean, "behaviour")
    assert main is not None
    recovered, total = {item.key: item.passed for item in items}, len(main.items)
    test = sequential_test(main.passed_by_key(), recovered, gate.behaviour_margin, gate.block, total)
    return test.outcome != "open"


def require_pass_fail(behaviour: Result | None) -> None:
    """Raise RecoverError for graded items: they hardly ever pass, so none would count as lost and any model would be
    promoted."""
    if behaviour is not None and not behaviour.is_pass_rate:
        raise RecoverError(
            f"The items of {behaviour.task} are graded instead of passed or failed, so the gate cannot judge by them. "
            "Name a task whose items pass or fail under suites in recover.json."
        )


def _judge_behaviour(gate: Gate, clean: Result, recovered: Result) -> Judgement:
    block, of = (recovered.settings.get(name, 0) for name in ("block", "of"))
    test = sequential_test(clean.passed_by_key(), recovered.passed_by_key(), gate.behaviour_margin, block, of)
    passed, pair = test.outcome == "passed", test.pair
    needed = None if passed else pair.n_needed(gate.behaviour_margin)
    return Judgement(
        passed,
        pair.difference,
        pair.low,
        -gate.behaviour_margin,
        pair.n,
        needed,
        unsure=test.outcome == "open",
        of=test.total,
        differ=pair.differ,
    )


def _judge_knowledge(knowledge: Result, share: float, best: float) -> Judgement:
    value, limit = knowledge.headline.value, share * best
    return Judgement(value >= limit, value, value, limit, knowledge.headline.n)


def _behaviour_reason(b: Judgement) -> str:
    worst_case, margin = bound_and_margin(b.bound, b.limit, b.passed)
    items = f"after {b.n:,} of {b.of:,} prompts" if b.of and b.of > b.n else f"on {b.n:,} items"
    text = (
        f"instruction following is {relation(b.value)} the clean model's {items}, and {worst_case} with 95 % confidence"
    )
    if b.passed:
        return f"{text} (the gate allows {margin})"
    text += f", but the gate allows only {margin}"
    if not b.unsure:
        return text
    enough = f" (about {b.needed:,} would be enough; see --limit)" if b.needed and b.needed > b.n else ""
    return f"{text}: too few items to tell{enough}"


def _knowledge_reason(subject: str, k: Judgement | None) -> str:
    if k is None:
        return "knowledge was not measured, so only instruction following was judged (add --questions)"
    value, limit = with_limit(k.value, k.limit, k.passed)
    requirement = f" (the gate requires {limit})" if k.passed else f", but the gate requires {limit}"
    return f"knowledge of {subject} is {value}{requirement}"
