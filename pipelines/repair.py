"""`recover repair`: try moves on a fine-tune, the cheapest first, and stop at the first that passes the gate.

A fine-tune that has unlearned to end its turns is taught that first, and all other moves begin from there; not where it
took a new adapter on merged weights (above a billion parameters), on which no other move could go on.
Every move is an ordinary distillation job under the name of the repair, from the fine-tune as it was, but an average
from what training made of it; the record says what is done of each, so an interrupted repair goes on where it stopped,
and a finished one is not computed again.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from db.next_attempt import LIMIT, LIMITS, Attempt, NextAttempt, advise
from db.tables import Checkpoint
from evals.results import headlines
from evals.suites.config import load_suites
from evals.suites.training_texts import has_conversations
from pipelines.cycle import Cycle, Outcome, saved_job
from pipelines.evaluation.checkpoint_measurement import knowledge_result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.printed_tables import scores_table, verdict_table
from pipelines.gate.verdict import LEAST_GAIN, Judgement, Verdict
from pipelines.job import Job
from pipelines.log import duration, log
from pipelines.model_loading import load_frozen
from pipelines.project.project import Project
from pipelines.project.runs import runs_of_job
from pipelines.settings.defaults import Pace, Size, size_of
from pipelines.settings.resolve import apply_overrides, change_recipe
from pipelines.settings.schema import AUTO, DEFAULT_WARM_START
from pipelines.training.probes import best_knowledge
from pipelines.turn_ends import BaseReplies
from recovery.models.adapters import base_of
from recovery.models.students import parameters_of
from recovery.models.weight_files import same_weights
from recovery.stop_contract import has_lost_ends


class Way(NamedTuple):
    """How a move trains."""

    recipe: str
    words: str


MOVES = {  # in the order in which they are tried
    "ends": Way("offpolicy", "a few steps on the base's answers, for their ends"),
    "interpolation": Way("offpolicy", "interpolation towards the base"),
    "answers": Way("offpolicy-kl", "training on the base's answers and texts"),
    "average": Way("offpolicy", "training, averaged with the base"),
    "average-less": Way("offpolicy", "training, averaged with the base"),
    "opd": Way("opd", "on-policy distillation"),
}
PACE_FOR_ENDS: dict[Size, Pace] = {
    "small": Pace(2e-3, 24, 32),
    "medium": Pace(1e-3, 24, 7),
    "large": Pace(1e-4, 24, 32),
}
GUARDS = {
    "questions": "New knowledge is guarded by the questions",
    "documents": "New knowledge is guarded by the recall of the documents",
    "answers": "New knowledge is guarded by the likelihood of the training file's answers",
    "": "Nothing measurable was learned, so there is no new knowledge to guard",
    None: "New knowledge is unguarded, so a repair may cost it unnoticed (see --questions and --docs)",
}
# Shares of a step where the settings have none: the fine-tune's own documents or answers, and texts by the base.
REREAD, TEXTS = 0.2, 0.2
AVERAGES = {"average": 0.5, "average-less": 0.3}  # the base's share of the average with what was trained
Scores = Mapping[str, float | None]


@dataclass(frozen=True)
class Move:
    name: str  # of MOVES, or "none"
    scores: Scores
    verdict: Verdict
    checkpoint: Checkpoint
    share: float | None = None  # by which the weights moved towards the base without training
    steps: int = 0
    seconds: float = 0.0
    ending: float | None = None  # the probability of an end where replies of the base end
    next_attempt: NextAttempt | None = None  # what would bring it nearer

    def label(self) -> str:
        words = "as it is" if self.name == "none" else MOVES[self.name].words
        if self.name != "interpolation" and self.name not in AVERAGES:
            return words
        if self.share:
            return f"{words} by {self.share:g}"
        name = "average" if self.name in AVERAGES else self.name
        return f"{name}: {'not tried' if self.share is None else 'no share helps'}"

    def as_json(self) -> dict[str, Any]:
        return {
            "move": self.name,
            "scores": self.scores,
            "verdict": self.verdict.as_dict(),
            "checkpoint": self.checkpoint.reference,
            "share": self.share,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "ending": self.ending,
        }


@dataclass(frozen=True)
class RepairResult:
    job: Job
    base: str
    clean: Scores
    guard: str | None
    moves: list[Move]
    base_ending: float | None = None
    ends_later: bool = False  # the fine-tune ends its own replies, and need not end where the base does

    @property
    def last(self) -> Move:
        return self.moves[-1]

    @property
    def is_repaired(self) -> bool:
        return is_enough(self.last, None if self.ends_later else self.base_ending)

    @property
    def next_attempt(self) -> NextAttempt | None:
        """Of the move that came nearest, where none has passed."""
        tried = [move for move in self.moves if move.next_attempt]
        if self.is_repaired or not tried:
            return None

        def nearness(move: Move) -> tuple[bool, float]:  # one that more items may let pass is nearer than a failed one
            return move.verdict.outcome != "failed", sum(filter(None, move.scores.values()))

        return max(tried, key=nearness).next_attempt

    @property
    def summary(self) -> str:
        if not self.is_repaired:
            failed = not self.last.verdict.passed
            return f"No move passed the gate{f': {self.last.verdict.reason}' if failed else ' with replies that end'}."
        if self.last.name == "none":
            return "Repaired without training." if self.job.fixed else "Nothing to repair."
        return f"Repaired by {self.last.label()}."

    def as_json(self) -> dict[str, Any]:
        repaired = self.last if self.is_repaired else None
        return {
            "checkpoint": self.job.model or self.moves[0].checkpoint.reference,
            "base": self.base,
            "repaired": repaired.checkpoint.reference if repaired else None,
            "path": repaired.checkpoint.path if repaired else None,
            "move": repaired.name if repaired else None,
            "summary": self.summary,
            "guarded_by": self.guard or None,
            "notes": self.job.notes,
            "fixed": self.job.fixed,
            "moves": [move.as_json() for move in self.moves],
            "clean": self.clean,
            "before": self.moves[0].scores,
            "base_ending": self.base_ending,
            "ends_later": self.ends_later,
            "next_attempt": self.next_attempt.flags if self.next_attempt else None,
        }

    def lines(self) -> list[str]:
        rows = {f"base ({self.base})": self.clean} | {move.label(): move.scores for move in self.moves}
        took = ["", "took", "", "-", *(duration(move.seconds) for move in self.moves[1:])]
        verdicts = ["", "gate", "", *(move.verdict.outcome for move in self.moves)]
        table = zip(scores_table(rows), took, verdicts, strict=True)
        lines = [f"{line}{seconds:>10}  {verdict}".rstrip() for line, seconds, verdict in table]
        lines = [self.summary, *verdict_table(self.last.verdict.as_dict(), ("base", "now")), "", *lines]
        lines += [GUARDS[self.guard], *self.job.notes, *([self.job.fixed] if self.job.fixed else [])]
        if not self.ends_later and has_lost_ends(self.moves[0].ending, self.base_ending):
            ends = (f"{move.label()} {move.ending:.2f}" for move in self.moves)
            lines.append(
                f"Probability of an end where replies of the base end: base {self.base_ending:.2f}, {', '.join(ends)}"
            )
        stored = [f"{move.label()} {move.checkpoint.reference}" for move in self.moves]
        lines.append(f"In the record: {', '.join(stored)}")
        if self.is_repaired and (self.last.name != "none" or self.job.fixed):
            name, path = self.last.checkpoint.reference, self.last.checkpoint.path
            if name != path:
                lines.append(f"{name} is in {path}")
            lines.append(f"next: recover export {shlex.quote(name)} --to ./repaired")
        if self.next_attempt:
            changes = " and ".join(self.next_attempt.changes)
            lines.append(f"next: the same `recover repair` with {changes}: {self.next_attempt.flags}")
        if not self.is_repaired and self.job.corpus:
            lines.append("or: recover cycle --docs DIR, which trains the base anew beside its own answers and texts")
        return lines


def is_enough(move: Move, base_ending: float | None) -> bool:
    return move.verdict.passed and not has_lost_ends(move.ending, base_ending)


def run_repair(project: Project, job: Job) -> RepairResult:
    has_probes = job.settings.distill.probe_every > 0
    can_probe = has_probes and not job.eval_plan.split_problem(load_suites(project.base))
    with saved_job(project, job):
        recorded = project.reader.checkpoint(job.student or 0)
        assert recorded is not None
        student = project.verify(recorded)
        if job.fixed:
            log.info(job.fixed)
        replies = BaseReplies.of(project.base, project.cache)
        model = load_frozen(student.path)
        base_ending, ending = replies.ends.probability, replies.ending(model)
        ends_later = has_lost_ends(ending, base_ending) and replies.ends_its_own(model, project.base)
        is_lost = has_lost_ends(ending, base_ending) and not ends_later
        to_keep = None if ends_later else base_ending  # moves are held to half of this probability
        del model
        cycle = Cycle(project, replace(job, command="distill"))
        if is_lost:
            log.info(
                f"Where replies of the base end, the fine-tune ends with probability {ending:.2f}, the base with "
                f"{base_ending:.2f}: it has unlearned to end its turns"
            )
        clean, results, verdict = cycle.judge_student()
        moves = [Move("none", headlines(results), verdict, student, ending=ending)]
        learned = knowledge_result(results)
        known = best_knowledge(learned.headline.value, *cycle.known_before(learned)) if learned else None
        share: float | None = None  # to which interpolation moved, where all others have to move there themselves
        for name in MOVES:
            if is_enough(moves[-1], to_keep) or not _is_due(name, moves, project.base, is_lost):
                continue
            job_of_move = _job_of(job, name, share, can_probe, parameters_of(project.base))
            if name in AVERAGES:
                trained = next(move for move in moves if move.name == "answers")
                job_of_move = replace(job_of_move, student=trained.checkpoint.id)
            move = _try(project, job_of_move, name, replies, known, to_keep)
            moves.append(move)
            share = move.share if name == "interpolation" else share
            # All others begin from there; but from an adapter on the fine-tune no move leads to the base.
            has_ends = name == "ends" and base_of(move.checkpoint.path) != student.path
            # An adapter that is put on the fine-tune has no weights of its own that could be moved.
            needs_start = share is not None and job.settings.lora_rank > 0 and base_of(student.path) is None
            if has_ends or (name == "interpolation" and needs_start):
                job = replace(job, student=move.checkpoint.id)
                share = None
    return RepairResult(
        job,
        project.base_name,
        headlines(clean),
        _guard(job.eval_plan, moves[0].verdict.knowledge),
        moves,
        base_ending,
        ends_later,
    )


def _is_due(name: str, moves: Sequence[Move], base: str, is_lost: bool) -> bool:
    """An average with the base costs new knowledge: none is tried where that is short already, and a smaller one where
    the larger cost too much. No average of an adapter on other weights leads to the base."""
    knowledge = moves[-1].verdict.knowledge
    if name == "average":
        below = base_of(moves[-1].checkpoint.path)
        return (knowledge is None or knowledge.passed) and (below is None or same_weights(below, base))
    if name == "average-less":
        return moves[-1].name == "average" and knowledge is not None and not knowledge.passed
    return name != "ends" or is_lost


def _try(
    project: Project, job: Job, name: str, replies: BaseReplies, known: float | None, base_ending: float | None
) -> Move:
    """`known`: the new knowledge of the fine-tune, which every move is held to, also one that begins with another.
    `base_ending`: the probability of an end, half of which every move is held to."""
    log.info(f"Move: {MOVES[name].words}" + (f" by {AVERAGES[name]:g}" if name in AVERAGES else ""))
    started_at = time.monotonic()

    @cache
    def ending(path: str) -> float | None:
        return replies.ending(load_frozen(path))

    def objection(checkpoint: Checkpoint) -> str:
        return "its replies do not end" if has_lost_ends(ending(checkpoint.path), base_ending) else ""

    outcome = Cycle(project, job, known=known, objection=objection).distill()
    run, checkpoint = outcome.distilled, outcome.distilled.checkpoint
    recorded = project.reader.busy_seconds(run.id for run in runs_of_job(project, job.id))
    took = max(time.monotonic() - started_at, sum(recorded.values()))  # of one that was interrupted, also before that
    return Move(
        name,
        headlines(outcome.recovered),
        outcome.verdict,
        checkpoint,
        (run.warm_start or {}).get("share"),
        run.steps,
        project.cache.get_or_write("move-seconds", job.id, lambda: took),  # a finished move is not computed again
        ending(checkpoint.path),
        _advice(job, outcome, known) if name != "ends" else None,
    )


def _advice(job: Job, outcome: Outcome, known: float | None) -> NextAttempt | None:
    """Rows of documents are advised only where some are given. Where far more of these is known than the fine-tune
    knew, fewer rows are enough. Weights that were moved without a training may need more items, and nothing else."""
    learns_again = _has_read(job) and job.settings.keep_documents
    settings = apply_overrides(job.settings, {"distill": {"warm_start": AUTO}, "keep_documents": learns_again})
    at_first, now = (headlines(results)["knowledge"] or 0.0 for results in (outcome.clean, outcome.recovered))
    attempt = Attempt(
        settings.model_dump(),
        outcome.distilled.steps,
        settings.distill.most_steps,
        given={name: value for name, value in job.given.items() if name in LIMITS},
        stopped=outcome.distilled.stopped,
        of_repair=True,
        knows_far_more=known is not None and now - at_first > 2 * max(known - at_first, LEAST_GAIN),
    )
    advice = advise(outcome.verdict.as_dict(), attempt)
    return advice if attempt.steps or (advice and LIMIT in advice.flags) else None


def _job_of(job: Job, name: str, share: float | None, can_probe: bool, parameters: int) -> Job:
    """The job of one move: its runs carry its name, so that each is found again."""
    settings = change_recipe(job.settings, MOVES[name].recipe, parameters, job.given)
    given = job.settings.distill.warm_start if "distill.warm_start" in job.given else None
    distill: dict[str, Any] = {}
    overrides: dict[str, Any] = {"distill": distill}
    if name == "interpolation" or name in AVERAGES:
        overrides["lora_rank"] = 0  # a new adapter would leave nothing to interpolate
        chosen = AUTO if can_probe else DEFAULT_WARM_START
        distill |= {"steps": 0, "warm_start": AVERAGES.get(name, chosen if given is None else given)}
    else:
        if name == "ends":
            pace = PACE_FOR_ENDS[size_of(parameters)]._asdict()
            distill |= {field: value for field, value in pace.items() if f"distill.{field}" not in job.given}
            distill["steps"] = min(pace["steps"], settings.distill.steps)  # it stays short if others are to be longer
        distill["warm_start"] = (share or "off") if given is None or name == "ends" else given
        shares = {"documents": job.settings.distill.documents_share, "texts": job.settings.distill.texts_share}
        given_shares = {share: value for share, value in shares.items() if f"distill.{share}" in job.given}
        room = (1 - sum(given_shares.values())) / 2
        if _has_read(job) and "documents" not in given_shares:
            distill["documents"] = min(REREAD, room)  # else the distillation would cost what they taught
        if name != "ends" and "texts" not in given_shares:  # prompts hardly ask what the base knew
            distill["texts"] = min(TEXTS, room)
    return replace(job, command="distill", settings=apply_overrides(settings, overrides), id=f"{job.id}-{name}")


def _has_read(job: Job) -> bool:
    """Whether there is something that the fine-tune learned: it was named, or the project has it."""
    return bool(job.corpus or job.training_file or job.start)


def _guard(plan: EvalPlan, known: Judgement | None) -> str | None:
    """What guards new knowledge; `known` is how that of the fine-tune as it was is judged."""
    if known is None:  # also of documents without any names or numbers
        return None
    if known.limit == 0:  # nothing was gained
        return ""
    if plan.questions:
        return "questions"
    return "answers" if plan.passages and has_conversations(plan.passages) else "documents"
