"""Probes: small evaluations of the student during training, on items that the verdict does not use.

So few items cannot show anything with certainty, or no run would ever stop early. A probe holds when at most half of
the margin is lost on them and knowledge is kept within its standard error; two in a row end the distillation. The
verdict, on the other items, goes by confidence bounds.

Probes do not measure what the model knew before: so few questions would not show a loss of a few hundredths, and
distillation hardly restores it, so it is no reason to go on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from evals.results import Result, main_result
from evals.subject import Subject
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.measure import knowledge_result
from pipelines.gate.judgements import Judgement
from pipelines.gate.verdict import judge
from pipelines.settings.schema import Gate
from pipelines.training.probe_results import ProbeFunction, ProbeResult, ProbeScores, Score, best_knowledge
from recovery.engines import Engine
from recovery.models.students import Student


@dataclass(frozen=True)
class DistillProbe:
    """Compares the student with the clean model, by the gate's own rules."""

    gate: Gate
    plan: EvalPlan  # of the probe set
    clean: list[Result]  # the clean model's results on it
    suites: dict[str, str]

    def on(self, student: Student, engine: Engine) -> ProbeFunction:
        def probe(best_so_far: float | None) -> ProbeResult:
            engine.sync(student)
            behaviour, knowledge = _measure(Subject(engine, student.chat), self.plan, self.suites)
            clean = main_result(self.clean, "behaviour")
            assert clean is not None
            score = knowledge.headline.value if knowledge else None
            verdict = judge(self.gate, clean, behaviour, knowledge, best_knowledge(score, best_so_far))
            lost = -verdict.behaviour.value
            knows = knowledge is None or verdict.knowledge is None or _within_error(knowledge, verdict.knowledge)
            holds = knows and lost <= -verdict.behaviour.limit / 2
            return ProbeResult(behaviour.headline.value, score, lost, holds)

        return probe


@dataclass(frozen=True)
class MidtrainProbe:
    """Scores of a short mid-training, to compare several of them with each other."""

    plan: EvalPlan  # of the probe set
    suites: dict[str, str]

    def __call__(self, student: Student, engine: Engine) -> ProbeScores:
        behaviour, knowledge = _measure(Subject(engine, student.chat), self.plan, self.suites)
        return ProbeScores(Score.of(behaviour.headline), Score.of(knowledge.headline) if knowledge else None)

    def key(self, weights: str) -> list[str]:
        """Equal keys, equal items and settings."""
        return [self.plan.key(weights, suite, self.suites) for suite in ("behaviour", "knowledge")]


def distill_probe(
    gate: Gate,
    plan: EvalPlan,
    items: int,
    measure_clean: Callable[[EvalPlan], list[Result]],
    suites: dict[str, str],
) -> DistillProbe:
    """The clean model is measured on the probe set first, by a caller that records it."""
    probe_plan = probe_set(plan, items)
    return DistillProbe(gate, probe_plan, measure_clean(replace(probe_plan, suite="behaviour")), suites)


def probe_set(plan: EvalPlan, items: int) -> EvalPlan:
    passages = None if plan.questions else plan.passages  # one measure of knowledge is enough for a probe
    limit = min(items, plan.limit or items)  # a probe takes no more items than the verdict may
    return replace(plan, suite="all", split="probe", limit=limit, earlier_questions=(), passages=passages)


def _measure(subject: Subject, plan: EvalPlan, suites: dict[str, str]) -> tuple[Result, Result | None]:
    results = plan.run_suite(subject, "behaviour", suites)
    if plan.questions or plan.passages:
        results += plan.run_suite(subject, "knowledge", suites)
    behaviour = main_result(results, "behaviour")
    assert behaviour is not None
    return behaviour, knowledge_result(results)


def _within_error(knowledge: Result, judgement: Judgement) -> bool:
    """Against the best of several probes on a few dozen questions, one answer more or less must not decide."""
    stderr = knowledge.headline.stderr
    return judgement.value + (stderr if math.isfinite(stderr) else 0.0) >= judgement.limit
