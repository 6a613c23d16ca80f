"""Probes: small evaluations of the student during training, on items that the verdict does not use.

So few items cannot show anything with certainty, or no run would ever stop early. A probe holds when at most half of
the margin is lost on them and knowledge is kept within its standard error; two in a row end the distillation. The
verdict, on the other items, goes by confidence bounds.

What the model knew before has no part in this: so few questions would not show a loss of a few hundredths, and
distillation hardly restores it, so it is no reason to go on. Where checkpoints of probes are kept, it is measured for
the choice between them, on items that are quick to answer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from evals.results import Metric, Result, headline, main_result
from evals.subject import Subject
from evals.suites.measure import suite_tasks
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.measure import knowledge_result
from pipelines.gate.judgements import Judgement
from pipelines.gate.verdict import judge
from pipelines.settings.schema import Gate
from pipelines.training.probe_results import ProbeFunction, ProbeResult, ProbeScores, Score, best_knowledge
from recovery.engines import Engine
from recovery.models.students import Student

RETENTION_ITEMS = 200  # of all tasks together


@dataclass(frozen=True)
class DistillProbe:
    """Compares the student with the clean model, by the gate's own rules."""

    gate: Gate
    plan: EvalPlan  # of the probe set
    clean: list[Result]  # the clean model's results on it
    suites: dict[str, str]

    def on(self, student: Student, engine: Engine, with_retention: bool = False) -> ProbeFunction:
        def probe(best_so_far: float | None) -> ProbeResult:
            engine.sync(student)
            subject = Subject(engine, student.chat)
            behaviour, knowledge = _measure(subject, self.plan, self.suites)
            retention = _measure_retention(subject, self.plan, self.suites) if with_retention else None
            clean = main_result(self.clean, "behaviour")
            assert clean is not None
            score = knowledge.headline.value if knowledge else None
            verdict = judge(self.gate, clean, behaviour, knowledge, best_knowledge(score, best_so_far))
            lost = -verdict.behaviour.value
            knows = knowledge is None or verdict.knowledge is None or _within_error(knowledge, verdict.knowledge)
            holds = knows and lost <= -verdict.behaviour.limit / 2
            metrics = {
                "behaviour": behaviour.headline,
                "knowledge": knowledge.headline if knowledge else None,
                "retention": retention,
            }
            errors = {name: Score.of(metric).stderr for name, metric in metrics.items() if metric}
            return ProbeResult(
                behaviour.headline.value, score, lost, holds, retention.value if retention else None, errors
            )

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


def retention_probe(plan: EvalPlan, suites: dict[str, str]) -> tuple[EvalPlan, dict[str, str]] | None:
    """What a probe measures of what the model knew before, and the suites for it; None if the verdict has none of it.

    The lab's tasks, else the built-in questions: other tasks that a base names may take hours."""
    if "retention" not in plan.suites(suites):
        return None
    task = "lab" if "lab" in suite_tasks("retention", suites) else "general"
    items = min(RETENTION_ITEMS, plan.limit or RETENTION_ITEMS)
    return replace(plan, limit=items, secondary_limit=max(1, items // 2)), suites | {"retention": task}


def _measure_retention(subject: Subject, plan: EvalPlan, suites: dict[str, str]) -> Metric | None:
    chosen = retention_probe(plan, suites)
    return headline(chosen[0].run_suite(subject, "retention", chosen[1]), "retention") if chosen else None


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
