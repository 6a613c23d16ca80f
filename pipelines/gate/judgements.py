"""The gate's criteria: what was measured, its 95 % bound, and the limit that the bound must not fall below."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evals.results import Result
from evals.stats.paired_comparison import PairedTest, RepliesTest, paired_test
from evals.stats.sequential import Outcome, clear_outcome, greedy_alpha, samples_test, sequential_test
from evals.suites.training_texts import ANSWERS
from pipelines.settings.schema import Gate

MAX_NEEDED = 20_000  # items that anyone would ask: where more would be needed, another attempt is the better advice


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
