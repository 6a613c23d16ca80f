"""The gate: decide whether a recovered checkpoint may replace the current one, and say why."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from db.verdicts import bound_and_margin, losses, relation, replies, with_limit
from evals.results import Item, Result, main_result
from evals.stats.paired_comparison import PairedTest, RepliesTest, paired_test
from evals.stats.sequential import Outcome, clear_outcome, greedy_alpha, samples_test, sequential_test
from evals.suites.training_texts import ANSWERS
from pipelines.settings.schema import Gate
from recovery.errors import RecoverError

MAX_NEEDED = 20_000  # items that anyone would ask: where more would be needed, another attempt is the better advice
MAX_KINDS = 2


@dataclass(frozen=True)
class Judgement:
    """One criterion: the measured value, its confidence bound, and the limit that the bound must not fall below."""

    passed: bool
    value: float
    bound: float
    limit: float
    n: int
    needed: int | None = None  # items that would be enough, had `value` been measured on them; None if none would
    can_ask_more: bool = False  # whether a higher --limit reaches as many as needed
    unsure: bool = False  # neither within nor beyond the limit with 95 % confidence
    setting: str = ""  # that the limit comes from
    of: int | None = None  # items that could have been asked: more than `n` where the verdict was clear before
    differ: float | None = None  # share of the items that only one of the two models passes
    samples: int = 0  # sampled replies to each prompt, besides the greedy one, that `value` is the mean over


@dataclass(frozen=True)
class TaskChange:
    """The items of one task that passed before and fail now, and the reverse."""

    n: int
    lost: int
    gained: int


@dataclass(frozen=True)
class RetentionJudgement(Judgement):
    """What the model knew before, pooled over tasks, with the changes of each task."""

    tasks: dict[str, TaskChange] = field(default_factory=dict)
    graded: tuple[str, ...] = ()  # tasks that are left out: their items have grades instead of passes


@dataclass(frozen=True)
class Verdict:
    passed: bool
    outcome: str  # "passed", "failed", or "inconclusive": too few items to tell
    behaviour: Judgement
    knowledge: Judgement | None
    reason: str
    earlier: dict[int, Judgement] = field(default_factory=dict)  # knowledge of earlier cycles, by cycle number
    learned: bool | None = None  # whether the cycle's best knowledge is above the clean model's; None: not measured
    retention: RetentionJudgement | None = None  # what the model knew before; None: not measured
    changes: str = ""  # which instruction prompts were lost, and which came back; part of the reason

    @property
    def may_change_with_samples(self) -> bool:
        """Whether further replies to the instruction prompts could decide."""
        others = [j for j in (self.knowledge, *self.earlier.values(), self.retention) if j is not None]
        return self.behaviour.unsure and all(j.passed for j in others)

    def decision_text(self, promoted: bool) -> str:
        if promoted:
            return "promoted"
        return "inconclusive, so not promoted" if self.outcome == "inconclusive" else "rejected"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"earlier": {str(cycle): asdict(j) for cycle, j in self.earlier.items()}}


@dataclass(frozen=True)
class OtherResults:
    """The results of a recovered model besides instruction following, and what they are compared with."""

    knowledge: Result | None = None
    best_knowledge: float | None = None  # of the cycle's models
    earlier: Mapping[int, tuple[Result, float]] = field(default_factory=dict)  # by cycle: now, and how the cycle ended
    clean_knowledge: float | None = None
    retention: tuple[Sequence[Result], Sequence[Result]] = ((), ())  # of the clean and of the recovered model

    def judgements(self, gate: Gate) -> tuple[Judgement | None, dict[int, Judgement], RetentionJudgement | None]:
        """On the cycle's documents, on those of earlier cycles, and on what the clean model knew before."""
        of_documents = None
        if self.knowledge is not None and self.best_knowledge is not None:
            floor = likelihood_floor(self.knowledge, self.clean_knowledge)
            of_documents = judge_knowledge(
                self.knowledge, gate.keep_knowledge, self.best_knowledge, "gate.keep_knowledge", floor
            )
        of_earlier = {
            cycle: judge_knowledge(now, gate.keep_earlier, score, "gate.keep_earlier")
            for cycle, (now, score) in self.earlier.items()
        }
        return of_documents, of_earlier, judge_retention(gate, *self.retention)

    def fails(self, gate: Gate) -> bool:
        """Whether the verdict is a failure even if instruction following passes."""
        of_documents, of_earlier, retained = self.judgements(gate)
        judged = [j for j in (of_documents, *of_earlier.values(), retained) if j is not None]
        return any(not j.passed and not j.unsure for j in judged)


def judge(
    gate: Gate,
    clean: Result,
    recovered: Result,
    others: OtherResults = OtherResults(),
    samples: Sequence[tuple[Result, Result]] = (),
    damaged: Result | None = None,
    can_measure: Callable[[str, int], bool] = lambda suite, items: False,
) -> Verdict:
    """Judge a recovered checkpoint.

    Its behaviour result is compared with the clean model's, item by item; its knowledge with the best of the cycle.
    `damaged` is the behaviour result before the distillation: the reason says what came back.
    `can_measure`: whether a higher --limit reaches so many items of a suite.
    `samples` has further replies of both to the instruction prompts, sampled where the greedy ones do not decide.
    The reason notes where the documents taught nothing measurable: the clean model knows as much."""
    require_pass_fail(clean)
    require_pass_fail(recovered)
    behaviour = judge_behaviour(gate, clean, recovered, samples)
    of_documents, of_earlier, retained = others.judgements(gate)
    if behaviour.needed:
        behaviour = replace(behaviour, can_ask_more=can_measure("behaviour", behaviour.needed))
    if retained and retained.needed:
        retained = replace(retained, can_ask_more=can_measure("retention", retained.needed))
    learned = None
    if of_documents and others.best_knowledge is not None and others.clean_knowledge is not None:
        learned = others.best_knowledge > others.clean_knowledge
    judgements = [j for j in (behaviour, of_documents, *of_earlier.values(), retained) if j is not None]
    passed = all(j.passed for j in judgements)
    none_failed = all(j.passed or j.unsure for j in judgements)
    outcome = "passed" if passed else "inconclusive" if none_failed else "failed"
    note = ", and the documents taught nothing measurable: the clean model knows at least as much of them"
    changes = behaviour_changes(clean, damaged, recovered)
    reasons = [
        _behaviour_reason(behaviour, f" by {behaviour.setting}" if gate.keep_behaviour else ""),
        _knowledge_reason(_subject(others.knowledge), of_documents) + (note if learned is False else ""),
        *(_knowledge_reason(f"cycle {cycle}", j) for cycle, j in of_earlier.items()),
        _retention_reason(retained, any(result.suite == "retention" for result in others.retention[1])),
        *([changes] if changes else []),
    ]
    reason = "; ".join(reasons)
    return Verdict(passed, outcome, behaviour, of_documents, reason, of_earlier, learned, retained, changes)


def judge_behaviour(
    gate: Gate, clean: Result, recovered: Result, samples: Sequence[tuple[Result, Result]] = ()
) -> Judgement:
    """The bound holds for all looks at the verdict: after each block of prompts, and after each sample.

    `samples`: further replies of both models, which count where the greedy ones do not decide. Then the verdict is
    about the mean over all replies to a prompt, the greedy one among them."""
    margin, setting = behaviour_limit(gate, clean.headline.value)
    block, of = (recovered.settings.get(name, 0) for name in ("block", "of"))
    before, after = clean.passed_by_key(), recovered.passed_by_key()
    test = sequential_test(before, after, margin, block, of, alpha=greedy_alpha(gate.samples))
    judgement = _difference(test.pair, margin, setting, test.outcome)
    if samples and test.outcome == "open":
        sampled = [[result.passed_by_key() for result in side] for side in zip(*samples, strict=True)]
        outcome, replies = samples_test([before, *sampled[0]], [after, *sampled[1]], margin, gate.samples)
        judgement = replace(_difference(replies, margin, setting, outcome), samples=replies.samples)
    return replace(judgement, of=test.total, differ=test.pair.differ)


def behaviour_limit(gate: Gate, clean: float) -> tuple[float, str]:
    """The margin and its setting; the stricter of the two where there is `keep_behaviour`."""
    margins = {"gate.behaviour_margin": gate.behaviour_margin}
    if gate.keep_behaviour:
        margins["gate.keep_behaviour"] = (1 - gate.keep_behaviour) * clean
    setting = min(margins, key=lambda name: margins[name])
    return margins[setting], setting


def judge_knowledge(knowledge: Result, share: float, best: float, setting: str, floor: float = 0.0) -> Judgement:
    """`floor` is the score of a model that was taught nothing: the share is of what is above it."""
    value, limit = knowledge.headline.value, floor + share * max(0.0, best - floor)
    return Judgement(value >= limit, value, value, limit, knowledge.headline.n, setting=setting)


def likelihood_floor(knowledge: Result | None, clean: float | None) -> float:
    """The floor of a likelihood, which is far from 0 in a model that was taught nothing; of a share of answers, 0."""
    return clean or 0.0 if knowledge is not None and knowledge.task == ANSWERS else 0.0


def judge_retention(gate: Gate, clean: Sequence[Result], recovered: Sequence[Result]) -> RetentionJudgement | None:
    """Compare all items of all tasks that both models answered; None if no task has items that pass or fail."""
    now = {(result.task, result.data): result for result in recovered if result.suite == "retention"}
    before = [result for result in clean if result.suite == "retention" and (result.task, result.data) in now]
    pairs = [(result, now[result.task, result.data]) for result in before]
    graded = [a.task for a, b in pairs if not (a.is_pass_rate and b.is_pass_rate)]
    judged = [pair for pair in pairs if pair[0].task not in graded]
    if not judged:
        return None
    tasks = {a.task: paired_test(a.passed_by_key(), b.passed_by_key()) for a, b in judged}
    # Two tasks may have items of the same key.
    passes = [{f"{r.task}/{r.data}/{key}": passed for r in side for key, passed in r.passed_by_key().items()}
              for side in zip(*judged, strict=True)]  # fmt: skip
    pair = paired_test(passes[0], passes[1])
    known = [passed for key, passed in passes[0].items() if key in passes[1]]
    j = _difference(pair, (1 - gate.keep_retention) * sum(known) / len(known), "gate.keep_retention")
    if not gate.keep_retention or not any(known):  # nothing can be lost
        j = replace(j, passed=True, needed=None, unsure=False)
    changes = {task: TaskChange(t.n, len(t.lost), len(t.gained)) for task, t in tasks.items()}
    return RetentionJudgement(**vars(j), tasks=changes, graded=tuple(graded))


def _difference(
    pair: PairedTest | RepliesTest, margin: float, setting: str, outcome: Outcome | None = None
) -> Judgement:
    outcome = outcome or clear_outcome(pair.low, pair.high, margin)
    passed = outcome == "passed"
    needed = None if passed else pair.n_needed(margin)
    if needed is not None and needed > max(MAX_NEEDED, pair.n):
        needed = None
    is_open = outcome == "open"
    return Judgement(passed, pair.difference, pair.low, -margin, pair.n, needed, unsure=is_open, setting=setting)


def settles_behaviour(gate: Gate, clean: list[Result], items: list[Item]) -> bool:
    """Whether these items of a recovered checkpoint, asked in blocks, show a loss within or beyond the margin."""
    main = main_result(clean, "behaviour")
    assert main is not None
    recovered, total = {item.key: item.passed for item in items}, len(main.items)
    margin, alpha = behaviour_limit(gate, main.headline.value)[0], greedy_alpha(gate.samples)
    test = sequential_test(main.passed_by_key(), recovered, margin, gate.block, total, alpha=alpha)
    return test.outcome != "open"


def require_pass_fail(behaviour: Result | None) -> None:
    """Raise RecoverError for graded items: they hardly ever pass, so none would count as lost and any model would be
    promoted."""
    if behaviour is not None and not behaviour.is_pass_rate:
        raise RecoverError(
            f"The items of {behaviour.task} are graded instead of passed or failed, so the gate cannot judge by them. "
            "Name a task whose items pass or fail under suites in recover.json."
        )


def forgetting_reason(verdict: Verdict) -> str:
    """What the verdict says about instruction following and about what the model knew before."""
    reasons = [_behaviour_reason(verdict.behaviour)]
    if verdict.retention is not None:
        reasons.append(_retention_reason(verdict.retention, True))
    return "; ".join(reasons)


def _subject(knowledge: Result | None) -> str:
    return (
        "the training file (likelihood of its answers)" if knowledge and knowledge.task == ANSWERS else "the documents"
    )


def _behaviour_reason(b: Judgement, by_setting: str = "") -> str:
    return _difference_reason("instruction following", b, by_setting=by_setting)


def _difference_reason(subject: str, j: Judgement, changes: str = "", by_setting: str = "") -> str:
    worst_case, margin = bound_and_margin(j.bound, j.limit, j.passed)
    items = f"after {j.n:,} of {j.of:,} prompts" if j.of and j.of > j.n else f"on {j.n:,} items{replies(j.samples)}"
    text = f"{subject} is {relation(j.value)} the clean model's {items}{changes}, and {worst_case} with 95 % confidence"
    if j.passed:
        return f"{text} (the gate allows {margin}{by_setting})"
    text += f", but the gate allows only {margin}{by_setting}"
    if not j.unsure:
        return text
    if j.of and j.of > j.n:
        return f"{text}: not settled, but further prompts could not change the verdict"
    if j.needed is None:
        return f"{text}: too close to the limit to tell"
    flag = f": --limit {j.needed}" if j.can_ask_more else ""
    enough = f" (about {j.needed:,} would be enough{flag})" if j.needed > j.n else ""
    return f"{text}: too few items to tell{enough}"


def _knowledge_reason(subject: str, k: Judgement | None) -> str:
    if k is None:
        return "knowledge was not measured, so it was not judged (add --questions)"
    value, limit = with_limit(k.value, k.limit, k.passed)
    requirement = f" (the gate requires {limit})" if k.passed else f", but the gate requires {limit}"
    return f"knowledge of {subject} is {value}{requirement}"


def _retention_reason(r: RetentionJudgement | None, is_measured: bool) -> str:
    if r is None and is_measured:
        return "what it knew before was not judged: its items have grades instead of passes"
    if r is None:
        return "what it knew before was not measured, so it was not judged"
    changes = losses({task: (change.lost, change.gained) for task, change in r.tasks.items()})
    text = _difference_reason("what it knew before", r, f" ({changes})" if changes else "")
    if not r.graded:
        return text
    return f"{text}; {', '.join(r.graded)} {'has' if len(r.graded) == 1 else 'have'} grades instead of passes and " + (
        "was left out" if len(r.graded) == 1 else "were left out"
    )


def behaviour_changes(clean: Result, damaged: Result | None, recovered: Result) -> str:
    """Without a final full stop; empty if no verdict on a prompt has changed."""
    now = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    changed = len(now.lost) + len(now.gained)
    parts = [_came_back(clean, damaged, recovered)] if damaged else []
    if changed:
        kinds = _kinds(item for item in recovered.items if item.key in set(now.lost))
        most = f", most often {kinds}" if kinds else ""
        counts = f"{len(now.lost):,} lost{most}; {len(now.gained):,} gained"
        parts.append(f"{changed:,} of {now.n:,} verdicts differ from the clean model's ({counts})")
    return ", and ".join(filter(None, parts))


def _came_back(clean: Result, damaged: Result, recovered: Result) -> str:
    """On the prompts that all three answered."""
    before, after = damaged.passed_by_key(), recovered.passed_by_key()
    followed = [key for key, passed in clean.passed_by_key().items() if passed and key in before and key in after]
    lost = [key for key in followed if not before[key]]
    back = sum(after[key] for key in lost)
    if not lost:
        return ""
    return f"of {len(followed):,} prompts that the clean model followed, {len(lost):,} were lost and {back:,} came back"


def _kinds(lost: Iterable[Item]) -> str:
    """The kinds of instructions or checks that fail most often."""
    counts = Counter(kind for item in lost for kind in set(_failed(item)))
    return " and ".join(f"{kind} ({count})" for kind, count in counts.most_common(MAX_KINDS))


def _failed(item: Item) -> Iterator[str]:
    verdicts = item.verdicts
    checks = verdicts.get("checks") or zip(verdicts.get("instructions", ()), verdicts.get("strict", ()), strict=False)
    yield from (str(kind).partition(":")[0] for kind, passed in checks if not passed)
