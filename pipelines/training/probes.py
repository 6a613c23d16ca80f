"""Probes: small evaluations of the student during training, on items that the verdict does not use.

So few items cannot show anything with certainty, or no run would ever stop early. A probe holds when at most half of
the margin is lost on them and knowledge is kept within its standard error; two in a row end the distillation. The
verdict, on the other items, goes by confidence bounds.

What the model knew before has no part in this: so few questions would not show a loss of a few hundredths, and
distillation without texts of the base hardly restores it, so it is no reason to go on. In a repair it may be all that
was lost, and probes choose how far to interpolate, so there they judge it too (`EvalPlan.probe_all`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from db.headline_scores import MEASURES
from evals.results import Result, headline, main_result
from evals.subject import Subject
from pipelines.evaluation.checkpoint_measurement import knowledge_result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import OtherResults, judge, likelihood_floor
from pipelines.settings.schema import Gate
from recovery.engines import Engine
from recovery.models.students import Student


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
        best = best_knowledge(score, best_so_far, self.known)
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
            floor=floor,
        )


def probe_set(plan: EvalPlan, items: int) -> EvalPlan:
    passages = None if plan.questions else plan.passages  # one measure of knowledge is enough for a probe
    limit = min(items, plan.limit or items)  # a probe takes no more items than the verdict may
    return replace(plan, suite="all", split="probe", limit=limit, earlier_questions=(), passages=passages)
