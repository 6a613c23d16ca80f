"""The gate: decide whether a recovered checkpoint may replace the current one, and say why."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from db.headline_scores import MEASURES
from db.verdicts import cannot_be_missed
from evals.results import Item, Result, main_result, paired_results, pooled_passes
from evals.stats.paired_comparison import PairedTest, paired_test
from evals.stats.sequential import Outcome, clear_outcome, sequential_test
from evals.suites.training_texts import ANSWERS
from pipelines.settings.schema import Gate
from recovery.errors import RecoverError

MAX_NEEDED = 20_000  # items that anyone would ask: where more would be needed, another attempt is the better advice
LEAST_GAIN = 0.01  # of the likelihood of answers: less is as much as style and chance change
MAX_KINDS = 2
BUILT_IN = {"lab", "lab-natural", "public"}  # data whose keys stand for other prompts each; a file may be renamed
FOLLOWS_TOO_LITTLE = (
    "the clean model follows {:.3f} of the prompts, and the gate allows a loss of {:.3f}, so no loss could be seen: "
    "under suites in recover.json, name tasks that the model passes, or choose one that answers without thinking first"
)


@dataclass(frozen=True)
class Judgement:
    """One criterion: the measured value, its confidence bound, and the limit that the bound must not fall below."""

    passed: bool
    value: float
    bound: float
    limit: float
    n: int
    needed: int | None = None  # items that would be enough, had `value` been measured on them; None if none would
    needed_limit: int | None = None  # the --limit that reaches as many as needed; None if none does
    unsure: bool = False  # neither within nor beyond the limit with 95 % confidence
    setting: str = ""  # that the limit comes from
    before: float | None = None  # the clean model's score on the same items; of an earlier cycle, that at its end
    of: int | None = None  # items that could have been asked: more than `n` where the verdict was clear before
    differ: float | None = None  # share of the items that only one of the two models passes
    came_back: float | None = None  # by how much the distillation raised the score, on items that were asked before it

    @property
    def missed(self) -> bool:
        return not self.passed and not self.unsure


@dataclass(frozen=True)
class RetentionJudgement(Judgement):
    """What the model knew before, pooled over tasks, with the changes of each task."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)  # by name: "n", "lost" and "gained"
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
    changes: tuple[str, ...] = ()  # how the replies to the instruction prompts differ

    def decision_text(self, promoted: bool) -> str:
        if not promoted:
            return "not promoted"
        return "promoted" if self.passed else "promoted, against the gate"

    def headline(self, decision: str) -> str:
        return f"{decision[:1].upper()}{decision[1:]}{'' if self.passed else f': {self.reason}'}."

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
    damaged_retention: Sequence[Result] = ()  # before the distillation

    def judgements(self, gate: Gate) -> tuple[Judgement | None, dict[int, Judgement], RetentionJudgement | None]:
        """On the cycle's documents, on those of earlier cycles, and on what the clean model knew before."""
        of_documents, best, clean = None, self.best_knowledge, self.clean_knowledge
        if self.knowledge is not None and best is not None:
            share, setting, floor = gate.keep_knowledge, "gate.keep_knowledge", likelihood_floor(self.knowledge, clean)
            of_documents = judge_knowledge(self.knowledge, share, best, setting, floor, clean)
        of_earlier = {
            cycle: judge_knowledge(now, gate.keep_earlier, score, "gate.keep_earlier", before=score)
            for cycle, (now, score) in self.earlier.items()
        }
        return of_documents, of_earlier, judge_retention(gate, *self.retention, self.damaged_retention)

    def fails(self, gate: Gate) -> bool:
        """Whether the verdict is a failure even if instruction following passes."""
        of_documents, of_earlier, retained = self.judgements(gate)
        return any(j.missed for j in (of_documents, *of_earlier.values(), retained) if j is not None)


def judge(
    gate: Gate,
    clean: Result,
    recovered: Result,
    others: OtherResults = OtherResults(),
    damaged: Result | None = None,
    limit_for: Callable[[str, int, int], int | None] = lambda suite, items, judged: None,
) -> Verdict:
    """Judge a recovered checkpoint.

    Its behaviour result is compared with the clean model's, item by item; its knowledge with the best of the cycle.
    `damaged` is the behaviour result before the distillation: the verdict says what came back.
    `limit_for`: the --limit that reaches so many items of a suite, of which so many were judged, if one does."""
    require_pass_fail(clean)
    require_pass_fail(recovered)
    behaviour = judge_behaviour(gate, clean, recovered)
    if damaged:
        behaviour = replace(behaviour, came_back=_rise(damaged.passed_by_key(), recovered.passed_by_key()))
    of_documents, of_earlier, retained = others.judgements(gate)
    if behaviour.needed:
        behaviour = replace(behaviour, needed_limit=limit_for("behaviour", behaviour.needed, behaviour.n))
    if retained and retained.needed and (limit := limit_for("retention", retained.needed, retained.n)):
        retained = replace(retained, needed_limit=max(limit, behaviour.of or behaviour.n))  # it is of both measures
    learned = None
    if of_documents and others.best_knowledge is not None and others.clean_knowledge is not None:
        learned = max(others.best_knowledge, of_documents.value) > others.clean_knowledge
    judged: dict[str, list[Judgement]] = {
        "behaviour": [behaviour],
        "knowledge": [of_documents] if of_documents else [],
        "earlier": [*of_earlier.values()],
        "retention": [retained] if retained else [],
    }
    missed = [name for name, found in judged.items() if any(j.missed for j in found)]
    undecided = [name for name, found in judged.items() if any(j.unsure for j in found)]
    outcome = "failed" if missed else "inconclusive" if undecided else "passed"
    changes = behaviour_changes(clean, damaged, recovered)
    if cannot_be_missed(vars(behaviour)):
        changes = (FOLLOWS_TOO_LITTLE.format(behaviour.before, gate.behaviour_margin), *changes)
    reason = _reason(missed, undecided)
    passed = outcome == "passed"
    return Verdict(passed, outcome, behaviour, of_documents, reason, of_earlier, learned, retained, changes)


def _reason(missed: Sequence[str], undecided: Sequence[str]) -> str:
    """What stands in the way of a promotion, in a few words."""
    shown = MEASURES | {"earlier": "knowledge of earlier cycles"}
    names = [shown[measure] for measure in missed or undecided]
    subject = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    if missed:
        return f"{subject} {'is short of its limit' if len(names) == 1 else 'are short of their limits'}"
    return f"{subject} {'is' if len(names) == 1 else 'are'} not decided" if undecided else "every limit is met"


def judge_behaviour(gate: Gate, clean: Result, recovered: Result) -> Judgement:
    """The bound holds for all looks at the verdict, after each block of prompts."""
    if clean.task != recovered.task or (clean.data != recovered.data and {clean.data, recovered.data} & BUILT_IN):
        raise RecoverError(
            f"The clean model was asked {clean.task} ({clean.data}), and this one {recovered.task} ({recovered.data}), "
            "so their items cannot be paired. Measure both on the same prompts."
        )
    margin, setting = gate.behaviour_margin, "gate.behaviour_margin"
    # Prompts that were asked in other blocks, before the setting was changed, are looked at as a new measurement is.
    block, of = (gate.block if "block" in recovered.settings else 0), recovered.settings.get("of", 0)
    before, after = clean.passed_by_key(), recovered.passed_by_key()
    test = sequential_test(before, after, margin, block, of)
    of_clean = [before[key] for key in after if key in before][: test.pair.n]  # until the look that was clear
    judgement = _difference(test.pair, margin, setting, test.outcome)
    judgement = replace(judgement, of=test.total, differ=test.pair.differ, before=sum(of_clean) / len(of_clean))
    if cannot_be_missed(vars(judgement)):
        judgement = replace(judgement, passed=False, unsure=True, needed=None)
    return judgement


def follows_too_little(gate: Gate, clean: Result, keys: Collection[str] | None = None) -> str:
    """A sentence where the clean model follows so few prompts, of all or of these, that no loss could be seen."""
    passes = [passed for key, passed in clean.passed_by_key().items() if keys is None or key in keys]
    share = sum(passes) / max(len(passes), 1)
    if not cannot_be_missed({"before": share, "limit": -gate.behaviour_margin}):
        return ""
    return FOLLOWS_TOO_LITTLE.format(share, gate.behaviour_margin)


def judge_knowledge(
    knowledge: Result, share: float, best: float, setting: str, floor: float | None = None, before: float | None = None
) -> Judgement:
    """`floor` is the likelihood that a model has which was taught nothing: the share is of what is above it, and where
    nothing is, nothing has to be kept."""
    value, gained = knowledge.headline.value, best - (floor or 0.0)
    limit = (floor or 0.0) + share * gained
    if floor is not None and gained < LEAST_GAIN:
        limit = 0.0
    is_enough = value >= limit - 1e-9  # 19 of 53 are 0.95 of 20 of 53, but not as binary fractions
    return Judgement(is_enough, value, value, limit, knowledge.headline.n, setting=setting, before=before)


def likelihood_floor(knowledge: Result | None, clean: float | None) -> float | None:
    """The floor of a likelihood, which is far from 0 in a model that was taught nothing; a share of answers has none"""
    return clean or 0.0 if knowledge is not None and knowledge.task == ANSWERS else None


def judge_retention(
    gate: Gate, clean: Sequence[Result], recovered: Sequence[Result], damaged: Sequence[Result] = ()
) -> RetentionJudgement | None:
    """Compare all items of all tasks that both models answered; None if no task has items that pass or fail."""
    pairs = paired_results(clean, recovered, "retention")
    graded = [a.task for a, b in pairs if not (a.is_pass_rate and b.is_pass_rate)]
    judged = [pair for pair in pairs if pair[0].task not in graded]
    if not judged:
        return None
    tasks = {a.task: paired_test(a.passed_by_key(), b.passed_by_key()) for a, b in judged}
    passes = [pooled_passes(side) for side in zip(*judged, strict=True)]
    pair = paired_test(passes[0], passes[1])
    known = [passed for key, passed in passes[0].items() if key in passes[1]]
    before = sum(known) / len(known)
    j = replace(_difference(pair, (1 - gate.keep_retention) * before, "gate.keep_retention"), before=before)
    if not gate.keep_retention or not any(known):  # nothing can be lost
        j = replace(j, passed=True, needed=None, unsure=False)
    passed_before = pooled_passes(r for r in damaged if r.suite == "retention" and r.task in tasks)
    j = replace(j, came_back=_rise(passed_before, passes[1]))
    changes = {task: {"n": t.n, "lost": len(t.lost), "gained": len(t.gained)} for task, t in tasks.items()}
    return RetentionJudgement(**vars(j), tasks=changes, graded=tuple(graded))


def _difference(pair: PairedTest, margin: float, setting: str, outcome: Outcome | None = None) -> Judgement:
    outcome = outcome or clear_outcome(pair.low, pair.high, margin)
    passed = outcome == "passed"
    needed = None if passed else pair.n_needed(margin)
    if needed is not None and needed > max(MAX_NEEDED, pair.n):
        needed = None
    is_open = outcome == "open"
    return Judgement(passed, pair.difference, pair.low, -margin, pair.n, needed, unsure=is_open, setting=setting)


def settles_behaviour(gate: Gate, clean: list[Result], items: list[Item]) -> bool:
    """Whether these items of a recovered checkpoint, asked in blocks, show a loss within or beyond the margin, or no
    prompts could show one."""
    main = main_result(clean, "behaviour")
    assert main is not None
    if follows_too_little(gate, main):
        return True
    recovered, total = {item.key: item.passed for item in items}, len(main.items)
    test = sequential_test(main.passed_by_key(), recovered, gate.behaviour_margin, gate.block, total)
    return test.outcome != "open" and not follows_too_little(gate, main, recovered.keys())


def require_pass_fail(behaviour: Result | None) -> None:
    """Raise RecoverError for graded items: they hardly ever pass, so none would count as lost and any model would be
    promoted."""
    if behaviour is not None and not behaviour.is_pass_rate:
        problem = f"The items of {behaviour.task} are graded instead of passed or failed"
        if not behaviour.is_share:
            problem = f"{behaviour.task} measures {behaviour.headline_name}, which is better the lower it is"
        raise RecoverError(
            f"{problem}, so the gate cannot judge by this task. "
            "Name one whose items pass or fail under suites in recover.json."
        )


def behaviour_changes(clean: Result, damaged: Result | None, recovered: Result) -> tuple[str, ...]:
    """Short lines; none if no verdict on a prompt has changed, and no fewer replies end."""
    now = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    changed = len(now.lost) + len(now.gained)
    lines = [_came_back(clean, damaged, recovered)] if damaged else []
    if changed:
        kinds = _kinds(item for item in recovered.items if item.key in set(now.lost))
        most = f", most often {kinds}" if kinds else ""
        counts = f"{len(now.lost):,} lost{most}; {len(now.gained):,} gained"
        lines.append(f"{changed:,} of {now.n:,} verdicts differ from the clean model's: {counts}")
    lines.append(_fewer_ends(clean, recovered))
    return tuple(filter(None, lines))


def _rise(before: Mapping[str, bool], after: Mapping[str, bool]) -> float | None:
    """By how much the share that passes rose, on the items of both."""
    common = before.keys() & after.keys()
    return sum(after[key] - before[key] for key in common) / len(common) if common else None


def _came_back(clean: Result, damaged: Result, recovered: Result) -> str:
    """On the prompts that all three answered."""
    before, after = damaged.passed_by_key(), recovered.passed_by_key()
    followed = [key for key, passed in clean.passed_by_key().items() if passed and key in before and key in after]
    lost = [key for key in followed if not before[key]]
    if not lost:
        return ""
    back, others = sum(after[key] for key in lost), sum(before[key] and not after[key] for key in followed)
    also = f", {others:,} other{'s' * (others != 1)} lost" if others else ""
    return (
        f"of {len(followed):,} prompts that the clean model followed, {len(lost):,} were lost before; {back:,} of "
        f"these are regained{also}"
    )


def _fewer_ends(clean: Result, recovered: Result) -> str:
    """Where certainly fewer replies end than of the clean model: a reply that runs on may follow its instructions."""
    before, after = (
        {item.key: bool(item.verdicts["finished"]) for item in result.items if "finished" in item.verdicts}
        for result in (clean, recovered)
    )
    if not before.keys() & after.keys():
        return ""
    ends = paired_test(before, after)
    if ends.high >= 0:
        return ""
    of_clean, now = (sum(ended[key] for key in before.keys() & after.keys()) for ended in (before, after))
    return f"fewer replies end within the limit of tokens: {now:,} of {ends.n:,}, of the clean model's {of_clean:,}"


def _kinds(lost: Iterable[Item]) -> str:
    """The kinds of instructions or checks that fail most often."""
    counts: Counter[str] = Counter()
    for verdicts in (item.verdicts for item in lost):
        instructions = zip(verdicts.get("instructions", ()), verdicts.get("strict", ()), strict=False)
        checks = verdicts.get("checks") or instructions
        counts.update({str(kind).partition(":")[0] for kind, passed in checks if not passed})
    return " and ".join(f"{kind} ({count})" for kind, count in counts.most_common(MAX_KINDS))
