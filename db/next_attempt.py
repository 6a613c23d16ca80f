"""What the next attempt of a cycle should change, from what the gate found short in the last one.

Each criterion that failed asks for one change: the first thing to try, not a search.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from db.tables import COLLAPSED, Cycle, Run
from db.verdicts import cannot_be_missed, more_items

SHARE_STEP = 0.2  # added to the share of documents, or of the base's texts
MAX_SHARE = 0.4  # of a step's rows: beyond it too little is left to the distillation
WARM_START = 0.3
ROWS = {"documents": "rows of documents", "texts": "rows of texts by the base"}  # by setting
LIMIT = "--limit "
LIMITS = ("distill.max_steps", "distill.max_minutes", "distill.max_flops")
# Recipes that the advice is about.
RESTORING = ("opd", "opd-sampled", "gkd", "offpolicy", "offpolicy-kl", "continuation")


@dataclass(frozen=True)
class NextAttempt:
    changes: tuple[str, ...]  # for people, such as "more steps"
    command: str
    flags: str  # of the command, that make these changes

    @property
    def introduction(self) -> str:
        return f"Try again with {' and '.join(self.changes)}"

    def __str__(self) -> str:
        return f"{self.introduction}: {self.command}"


@dataclass(frozen=True)
class Attempt:
    """A distillation that the gate has judged."""

    settings: Mapping[str, Any]  # as a run stores them
    steps: int  # taken
    planned: int  # at most
    given: Mapping[str, Any] = field(default_factory=dict)  # the settings that a person gave, by their dotted names
    stopped: str | None = None  # why it ended before its last step
    # Of a move of a repair: others have other rates, and probes have chosen where it begins, so both stay.
    of_repair: bool = False
    knows_far_more: bool = False  # than the fine-tune did, so that fewer rows of what that learned are enough

    def distill(self, name: str) -> Any:
        return (self.settings.get("distill") or {}).get(name)

    @property
    def has_moved(self) -> bool:
        """Whether a warm start by a given share came before it."""
        try:
            return float(self.distill("warm_start")) > 0
        except (TypeError, ValueError):  # a word, such as off
            return False


class Change(NamedTuple):
    text: str
    flag: str
    value: object  # None: the default, instead of what was given


def next_attempt(cycle: Cycle, runs: Iterable[Run], is_last: bool = True) -> NextAttempt | None:
    """The advice on a rejected cycle; None if the gate found nothing short, or the mid-trained weights are gone.

    `is_last`: its mid-trained checkpoint is the default student."""
    midtrained, recovered = cycle.damaged.checkpoint, cycle.recovered.checkpoint
    run = next((run for run in runs if recovered and run.id == recovered.run_id), None)
    if cycle.status != "rejected" or midtrained is None or midtrained.deleted_at or recovered is None or run is None:
        return None
    steps = recovered.step or 0
    student = cycle.student if cycle.student and not cycle.student.deleted_at else midtrained
    attempt = Attempt(run.settings, steps, run.steps or steps, run.inputs.given or {}, run.stopped)
    is_default = is_last and student.id == midtrained.id
    return advise(cycle.verdict or {}, attempt, "" if is_default else student.reference)


def advise(verdict: Mapping[str, Any], attempt: Attempt, student: str = "") -> NextAttempt | None:
    """The advice on an attempt; None if it passed, or was to teach something new. `student`: what it started from,
    unless that is the default. The command has the teacher and the settings that were given, without limits of the
    training's length; files and limits of items are for a person to add.
    """
    changes: dict[str, Change] = {}
    is_restoring = attempt.distill("recipe") in RESTORING and attempt.distill("teacher_weight") in (None, 1)
    for change in filter(None, _changes(verdict, attempt) if is_restoring and not verdict.get("passed") else ()):
        first = changes.setdefault(change.flag, change)  # the first criterion decides about a setting,
        if change.flag == LIMIT:  # and the largest limit is enough for all
            changes[LIMIT] = max(first, change, key=lambda other: int(str(other.value)))
    if not changes:
        return None
    command = ["recover distill", *([f"--student {student}"] if student else [])]
    command += ["--teacher", shlex.quote(str(attempt.given.get("teacher", "base")))]
    lifted = [f"--set {name}=" for name in attempt.given if name in LIMITS] if changes.keys() != {LIMIT} else []
    flags = [f"{flag}none" for flag in lifted]
    flags += [f"{change.flag}{change.value}" for change in changes.values() if change.value is not None]
    command += [*_given(attempt.given, [*changes, *lifted]), *flags]
    return NextAttempt(tuple(change.text for change in changes.values()), " ".join(command), " ".join(flags))


def _given(given: Mapping[str, Any], changed: Iterable[str]) -> Iterator[str]:
    """The flags of an attempt's settings, but for those that are changed."""
    for name, value in given.items():
        flag = {"distill.recipe": "--recipe ", "distill.warm_start": "--warm-start "}.get(name, f"--set {name}=")
        is_other = name.startswith("midtrain.") or name == "teacher"
        if not is_other and flag not in changed:
            text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            yield f"{flag}{shlex.quote(text)}"


def _changes(verdict: Mapping[str, Any], attempt: Attempt) -> Iterator[Change | None]:
    behaviour, knowledge, retention = (verdict.get(name) or {} for name in ("behaviour", "knowledge", "retention"))
    lacks_knowledge = any(map(_is_short, [knowledge, *verdict.get("earlier", {}).values()]))
    lacks_behaviour = _is_short(behaviour) and not _is_left_open(behaviour) and not cannot_be_missed(behaviour)
    if not attempt.planned:  # nothing was distilled
        distillation = Change("a distillation", "--set distill.steps=", None)
        if lacks_knowledge and attempt.has_moved:
            yield Change("no warm start", "--warm-start ", "off")
            yield distillation if lacks_behaviour else None
        elif lacks_behaviour or lacks_knowledge or _is_short(retention):
            unsure = [behaviour] * lacks_behaviour + [retention] * _is_short(retention)
            yield from list(filter(None, map(_more_items, unsure))) or [distillation]
        return
    if lacks_behaviour:
        is_worse = _made_worse(behaviour) or (attempt.stopped or "").startswith(COLLAPSED)
        yield _more_items(behaviour) or (_lower_rate(attempt) if is_worse else _more_steps(attempt))
    if _is_short(retention):
        is_worse, texts = _made_worse(retention), _more_rows(attempt, "texts", other="documents")
        cure = (texts or _lower_rate(attempt)) if is_worse else (_warm_start(attempt) or texts)
        yield _more_items(retention) or cure or (None if is_worse else _more_steps(attempt))
    share = attempt.settings.get("keep_documents") is not False and attempt.distill("documents")
    if (lacks_behaviour or _is_short(retention)) and attempt.knows_far_more and share:
        yield Change("fewer rows of what it had learned", "--set distill.documents=", f"{share / 4:g}")
    if lacks_knowledge:
        fewer_steps = Change("fewer steps", "--set distill.steps=", max(1, attempt.steps // 2))
        yield _more_rows(attempt, "documents", other="texts") or fewer_steps


def _is_short(judgement: Mapping[str, Any]) -> bool:
    """Not where it was not judged, and is empty."""
    return judgement.get("passed") is False


def _made_worse(judgement: Mapping[str, Any]) -> bool:
    """Whether the distillation lost more than it brought back."""
    return (judgement.get("came_back") or 0.0) < 0


def _is_left_open(judgement: Mapping[str, Any]) -> bool:
    """Whether prompts were left unasked because another criterion had failed: then nothing was found short."""
    return bool(judgement.get("unsure")) and (judgement.get("of") or 0) > judgement["n"]


def _more_items(judgement: Mapping[str, Any]) -> Change | None:
    """Where a larger number of items could show that the criterion is met, and there are so many."""
    limit = judgement.get("needed_limit")
    return Change("more items", LIMIT, limit) if limit and more_items(judgement) else None


def _more_steps(attempt: Attempt) -> Change | None:
    """Twice as many, if that is more than were planned; without probes, where these have ended the attempt before its
    last step."""
    has_budget = attempt.distill("max_minutes") or attempt.distill("max_flops")
    if attempt.steps < attempt.planned and attempt.distill("probe_every") and not has_budget:
        return None if attempt.of_repair else Change("no early stopping", "--set distill.probe_every=", 0)
    if 2 * attempt.steps <= attempt.planned and not has_budget:
        return None  # no more than were planned
    return Change("more steps", "--set distill.steps=", max(2 * attempt.steps, attempt.planned))


def _lower_rate(attempt: Attempt) -> Change | None:
    """Where the distillation cost more than it brought back, or collapsed, more of it would cost more."""
    rate = attempt.distill("learning_rate")
    has_none = attempt.of_repair or not rate
    return None if has_none else Change("a lower rate", "--set distill.learning_rate=", f"{rate / 4:g}")


def _more_rows(attempt: Attempt, name: str, other: str) -> Change | None:
    """Of documents, where they were kept, or of texts; the other one of them has a share of the rows, too."""
    if name == "documents" and attempt.settings.get("keep_documents") is False:
        return None
    share, of_other = (attempt.distill(setting) or 0.0 for setting in (name, other))
    if not isinstance(share, int | float) or not isinstance(of_other, int | float) or share >= MAX_SHARE:
        return None
    more = min(share + SHARE_STEP, MAX_SHARE)
    if more + of_other >= 1:
        return None
    return Change(f"more {ROWS[name]}" if share else ROWS[name], f"--set distill.{name}=", f"{more:g}")


def _warm_start(attempt: Attempt) -> Change | None:
    """An adapter that distillation adds has no earlier weights to move towards."""
    off = attempt.distill("warm_start") == "off" and not attempt.settings.get("lora_rank")
    return Change("a warm start", "--warm-start ", WARM_START) if off else None
