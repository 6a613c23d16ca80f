"""Probes: small evaluations of the student during training, on items that the verdict does not use.

So few items cannot show anything with certainty, or no run would ever stop early. A probe holds when at most half of
the margin is lost on them and knowledge is kept within its standard error; two in a row end the distillation. The
verdict, on the other items, goes by confidence bounds.

What the model knew before has no part in this: so few questions would not show a loss of a few hundredths, and
distillation without texts of the base hardly restores it, so it is no reason to go on. In a repair it may be all that
was lost, and probes choose how far to interpolate, so there they judge it too (`EvalPlan.probe_all`).

They end a distillation once enough is recovered; so does a spent budget, or a collapse. A collapse is told from a
recovery by what the clean model's replies are like, which is measured once, and cached. Everything that this depends on
is in `MonitorState`, which is saved with the run: a resumed run decides as an unbroken one would.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from db.headline_scores import MEASURES
from evals.results import Result, headline, main_result
from evals.subject import Subject
from pipelines.evaluation.checkpoint_measurement import knowledge_result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import OtherResults, judge, likelihood_floor
from pipelines.log import log
from pipelines.model_loading import open_subject
from pipelines.settings.schema import Distill, Gate
from pipelines.training.stage_context import Stage, Teachers
from recovery.collapse import CleanReplies, CollapseWatch
from recovery.engines import Engine, Generation, Sampling
from recovery.models.students import Student
from recovery.recipes import Recipe
from recovery.states import Prompt
from recovery.telemetry import StepRecord

PROBES_IN_A_ROW = 2  # that must hold
CLEAN_REPLIES = 64  # shares of so many are exact to 0.06


@dataclass(frozen=True)
class ProbeResult:
    behaviour: float
    knowledge: float | None
    lost: float  # what is missing against the clean model, of instruction following or of what it knew before
    holds: bool  # whether the gate's limits are met on the probe set
    retention: float | None = None  # what it knew before; in a repair alone
    knowledge_error: float = 0.0  # standard error
    floor: float = 0.0  # the knowledge of a model that was taught nothing

    @property
    def scores(self) -> dict[str, float | None]:
        scores = {"behaviour": self.behaviour, "knowledge": self.knowledge}
        return scores if self.retention is None else scores | {"retention": self.retention}

    def __str__(self) -> str:
        return " · ".join(f"{MEASURES[name]} {score:.3f}" for name, score in self.scores.items() if score is not None)


ProbeFunction = Callable[[float | None], ProbeResult]  # given the best knowledge of earlier probes


def best_knowledge(*scores: float | None) -> float | None:
    return max((score for score in scores if score is not None), default=None)


@dataclass(frozen=True)
class DistillProbe:
    gate: Gate
    plan: EvalPlan  # of the probe set
    clean: list[Result]  # the clean model's results on it
    suites: dict[str, str]
    known: float | None = None  # new knowledge that the fine-tune of a repair had, on other items

    def on(self, student: Student, engine: Engine) -> ProbeFunction:
        def probe(best_so_far: float | None) -> ProbeResult:
            engine.sync(student)
            return self._judge(self._measure(Subject(engine, student.chat)), best_so_far)

        return probe

    def _measure(self, subject: Subject) -> list[Result]:
        names = ["behaviour", *(["knowledge"] if self.plan.questions or self.plan.passages else [])]
        if self.plan.probe_all:
            names = self.plan.suites(self.suites)
        return [result for name in names for result in self.plan.run_suite(subject, name, self.suites)]

    def _judge(self, results: list[Result], best_so_far: float | None) -> ProbeResult:
        clean, untaught = main_result(self.clean, "behaviour"), knowledge_result(self.clean)
        behaviour, knowledge = main_result(results, "behaviour"), knowledge_result(results)
        assert clean is not None
        assert behaviour is not None
        score = knowledge.headline.value if knowledge else None
        floor = likelihood_floor(knowledge, untaught.headline.value if untaught else None)
        best = best_knowledge(score, best_so_far) if self.known is None else self.known
        others = OtherResults(knowledge, best, {}, floor, (self.clean, results))
        verdict = judge(self.gate, clean, behaviour, others)
        losses = [j for j in (verdict.behaviour, verdict.retention) if j is not None]
        error = knowledge.headline.stderr if knowledge and math.isfinite(knowledge.headline.stderr) else 0.0
        # Against the best of several probes on a few dozen questions, one answer more or less must not decide.
        knows = verdict.knowledge is None or verdict.knowledge.value + error >= verdict.knowledge.limit
        retention = headline(results, "retention")
        return ProbeResult(
            behaviour.headline.value,
            score,
            lost=max(-j.value for j in losses),
            holds=knows and all(-j.value <= -j.limit / 2 for j in losses),
            retention=retention.value if retention else None,
            knowledge_error=error,
            floor=floor or 0.0,
        )


def probe_set(plan: EvalPlan, items: int) -> EvalPlan:
    passages = None if plan.questions else plan.passages  # one measure of knowledge is enough for a probe
    limit = min(items, plan.limit or items)  # a probe takes no more items than the verdict may
    return replace(plan, suite="all", split="probe", limit=limit, earlier_questions=(), passages=passages)


@dataclass
class MonitorState:
    seconds: float = 0.0
    flops: float = 0.0
    tokens: int = 0
    holds_in_a_row: int = 0
    best_knowledge: float | None = None
    watch: CollapseWatch = field(default_factory=CollapseWatch)


class EarlyStopping:
    """Watches a run step by step. Without limits (mid-training) it only adds up time, FLOPs and tokens."""

    def __init__(
        self,
        limits: Distill | None = None,
        probe: ProbeFunction | None = None,
        *,
        until_probes_hold: bool = True,
        clean: CleanReplies | None = None,
        may_collapse: bool = True,  # not where it learns ready-made tokens: it has to move away from where it began
    ):
        self.limits, self.probe, self.until_probes_hold = limits, probe, until_probes_hold
        self.may_collapse = may_collapse
        self.state = MonitorState(watch=CollapseWatch(clean))
        self.collapsed = False

    def restore(self, state: dict[str, Any]) -> None:
        self.state = MonitorState(**state | {"watch": CollapseWatch.restored(state["watch"])})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self.state)

    def after_step(self, record: StepRecord, steps: int) -> tuple[ProbeResult | None, str]:
        """(the probe's result, if one was due; the reason to stop, if there is one)."""
        state, limits = self.state, self.limits
        state.seconds += record.rollout_seconds + record.teacher_seconds + record.update_seconds
        state.flops += record.flops
        state.tokens += record.target_tokens
        if limits is None:
            return None, ""
        if self.may_collapse and (reason := state.watch.after_step(record)):
            self.collapsed = True
            return None, reason
        if limits.max_minutes and state.seconds > 60 * limits.max_minutes:
            return None, f"the budget of {limits.max_minutes:g} minutes is spent"
        if limits.max_flops and state.flops > limits.max_flops:
            return None, f"the budget of {limits.max_flops:.3g} FLOPs is spent"
        steps_done = record.step + 1
        is_due = limits.probe_every and steps_done % limits.probe_every == 0 and steps_done < steps
        result = self.take_probe() if is_due else None
        if result is None:
            return None, ""
        state.holds_in_a_row = state.holds_in_a_row + 1 if result.holds else 0
        enough = self.until_probes_hold and state.holds_in_a_row >= PROBES_IN_A_ROW
        return result, f"{PROBES_IN_A_ROW} probes in a row met the gate's limits" if enough else ""

    def take_probe(self) -> ProbeResult | None:
        """Compared with the best knowledge of all probes yet, also of those during the warm start; None without any."""
        if self.probe is None:
            return None
        result = self.probe(self.state.best_knowledge)
        self.state.best_knowledge = best_knowledge(result.knowledge, self.state.best_knowledge)
        return result


def clean_replies(stage: Stage, chosen: Recipe, teachers: Teachers, prompts: Sequence[Prompt]) -> CleanReplies | None:
    """Of the teachers, to some of the prompts as they read them, with the rollouts' limit of tokens.

    None where nothing is rolled out or scored, or no teacher is a model that is loaded here and stays as it is. It
    loads the models, so it is called while no other is in memory."""
    if teachers.instead or not (chosen.on_policy_fraction and chosen.scores_with_teacher):
        return None
    seed, limit = stage.job.seed, stage.settings.distill.max_new_tokens
    some = Random(seed).sample(prompts, min(CLEAN_REPLIES, len(prompts)))
    tokens = {
        path: [some[i].teacher_prompt or some[i].tokens for i in indices]
        for path, indices in teachers.by_prompt(some).items()
    }
    sampling = Sampling(limit, seed=seed, of_turns=chosen.needs_checks)  # as the rollouts

    def measure() -> dict[str, Any]:
        log.info(f"Sampling {len(some)} replies of {teachers}, to tell a collapse from a recovery")
        replies: list[Generation] = []
        for path, of_teacher in tokens.items():
            with open_subject(path, "transformers") as subject:  # vLLM would take longer to start than this
                replies += subject.engine.generate(of_teacher, sampling)
        return asdict(CleanReplies.of(replies))

    inputs = [
        limit,
        seed,
        *["of turns"] * sampling.of_turns,
        *([stage.project.model_id(path), of_teacher] for path, of_teacher in tokens.items()),
    ]
    clean = CleanReplies(**stage.project.cache.get_or_write("clean-replies", inputs, measure))
    log.info(f"  Replies of {teachers}: {100 * clean.truncated:.0f} % are cut at {limit:,} tokens")
    return clean
