"""Probes: small evaluations of the student during training, on items that the verdict does not use.

So few items cannot show anything with certainty, or no run would ever stop early. A probe holds when at most half of
the margin is lost on them and knowledge is kept within its standard error; two in a row end the distillation. The
verdict, on the other items, goes by confidence bounds.

What the model knew before has no part in this: so few questions would not show a loss of a few hundredths, and
distillation hardly restores it, so it is no reason to go on. Where checkpoints of probes are kept, it is measured for
the choice between them, on items that are quick to answer. In a repair it may be all that was lost, and probes choose
how far to interpolate, so there they judge it too (`EvalPlan.probe_all`).

The checkpoints that are kept are the `Frontier`: each has something that none of the others has, so only a person can
choose between them. A difference within the standard error counts as none: of two points that are as good, the earlier
one stays. Never more than `keep` points are on disk, whatever comes later.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from evals.results import Metric, Result, headline, main_result
from evals.subject import Subject
from evals.suites.suite_measurement import suite_tasks
from pipelines.evaluation.checkpoint_measurement import knowledge_result
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import Judgement, OtherResults, judge, likelihood_floor
from pipelines.settings.schema import Gate
from recovery.engines import Engine
from recovery.models.students import Student

RETENTION_ITEMS = 200  # of all tasks together


@dataclass(frozen=True)
class ProbeResult:
    """A probe during distillation, compared with the clean model."""

    behaviour: float
    knowledge: float | None
    lost: float  # what is missing against the clean model, of instruction following or of what it knew before
    holds: bool  # whether the gate's limits are met on the probe set
    retention: float | None = None  # what it knew before; in a repair, and where checkpoints of probes are kept
    errors: Mapping[str, float] = field(default_factory=dict)  # standard errors by measure
    floor: float = 0.0  # the knowledge of a model that was taught nothing

    @property
    def scores(self) -> dict[str, float | None]:
        scores = {"behaviour": self.behaviour, "knowledge": self.knowledge}
        return scores if self.retention is None else scores | {"retention": self.retention}

    @property
    def measured(self) -> dict[str, float]:
        """The scores that there are, by measure."""
        scores = self.scores | {"retention": self.retention}
        return {name: value for name, value in scores.items() if value is not None}

    def __str__(self) -> str:
        knowledge = "" if self.knowledge is None else f" · knowledge {self.knowledge:.3f}"
        retention = "" if self.retention is None else f" · retention {self.retention:.3f}"
        return f"behaviour {self.behaviour:.3f}{knowledge}{retention}"


ProbeFunction = Callable[[float | None], ProbeResult]  # given the best knowledge of earlier probes


def best_knowledge(*scores: float | None) -> float | None:
    return max((score for score in scores if score is not None), default=None)


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
            results = self._measure(subject)
            retention = headline(results, "retention")
            if retention is None and with_retention:
                retention = self._measure_retention(subject)
            return self._judge(results, retention, best_so_far)

        return probe

    def _measure(self, subject: Subject) -> list[Result]:
        names = ["behaviour", *(["knowledge"] if self.plan.questions or self.plan.passages else [])]
        if self.plan.probe_all:
            names = self.plan.suites(self.suites)
        return [result for name in names for result in self.plan.run_suite(subject, name, self.suites)]

    def _measure_retention(self, subject: Subject) -> Metric | None:
        """The lab's tasks, else the built-in questions: other tasks that a base names may take hours. None if the
        verdict has none of it."""
        if "retention" not in self.plan.suites(self.suites):
            return None
        task = "lab" if "lab" in suite_tasks("retention", self.suites) else "general"
        items = min(RETENTION_ITEMS, self.plan.limit or RETENTION_ITEMS)
        plan = replace(self.plan, limit=items, secondary_limit=max(1, items // 2))
        return headline(plan.run_suite(subject, "retention", self.suites | {"retention": task}), "retention")

    def _judge(self, results: list[Result], retention: Metric | None, best_so_far: float | None) -> ProbeResult:
        clean, untaught = main_result(self.clean, "behaviour"), knowledge_result(self.clean)
        behaviour, knowledge = main_result(results, "behaviour"), knowledge_result(results)
        assert clean is not None
        assert behaviour is not None
        score = knowledge.headline.value if knowledge else None
        floor = likelihood_floor(knowledge, untaught.headline.value if untaught else None)
        best = best_knowledge(score, best_so_far)
        others = OtherResults(knowledge, best, {}, floor, (self.clean, results))
        verdict = judge(self.gate, clean, behaviour, others)
        losses = [j for j in (verdict.behaviour, verdict.retention) if j is not None]
        knows = knowledge is None or verdict.knowledge is None or _within_error(knowledge, verdict.knowledge)
        metrics = {
            "behaviour": behaviour.headline,
            "knowledge": knowledge.headline if knowledge else None,
            "retention": retention,
        }
        return ProbeResult(
            behaviour.headline.value,
            score,
            lost=max(-j.value for j in losses),
            holds=knows and all(-j.value <= -j.limit / 2 for j in losses),
            retention=retention.value if retention else None,
            errors={name: _stderr(metric) for name, metric in metrics.items() if metric},
            floor=floor,
        )


def probe_set(plan: EvalPlan, items: int) -> EvalPlan:
    passages = None if plan.questions else plan.passages  # one measure of knowledge is enough for a probe
    limit = min(items, plan.limit or items)  # a probe takes no more items than the verdict may
    return replace(plan, suite="all", split="probe", limit=limit, earlier_questions=(), passages=passages)


def _within_error(knowledge: Result, judgement: Judgement) -> bool:
    """Against the best of several probes on a few dozen questions, one answer more or less must not decide."""
    return judgement.value + _stderr(knowledge.headline) >= judgement.limit


def _stderr(metric: Metric) -> float:
    return metric.stderr if math.isfinite(metric.stderr) else 0.0


@dataclass(frozen=True)
class FrontierPoint:
    """A probe of the student after a number of steps."""

    step: int
    scores: Mapping[str, float]  # by measure
    errors: Mapping[str, float] = field(default_factory=dict)  # standard errors

    def covers(self, other: "FrontierPoint") -> bool:
        """Whether it is at least as good in every measure, within the standard error of the difference."""
        return all(self.scores.get(m, -math.inf) >= value - self._error(other, m) for m, value in other.scores.items())

    def _error(self, other: "FrontierPoint", measure: str) -> float:
        return math.hypot(self.errors.get(measure, 0.0), other.errors.get(measure, 0.0))

    @property
    def total(self) -> float:
        return math.fsum(self.scores.values())


@dataclass
class Frontier:
    """The kept points of one run, by step."""

    keep: int
    points: list[FrontierPoint] = field(default_factory=list)

    @classmethod
    def from_json(cls, keep: int, stored: Sequence[Mapping[str, Any]]) -> Self:
        return cls(keep, [FrontierPoint(**point) for point in stored])

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(point) for point in self.points]

    def points_with(self, new: FrontierPoint) -> list[FrontierPoint]:
        """The points to keep once there is a new one."""
        if not self.keep or any(point.covers(new) for point in self.points):
            return self.points
        return self._best([*self.points_beside(new), new])

    def points_beside(self, end: FrontierPoint) -> list[FrontierPoint]:
        """The points to keep beside a checkpoint that is kept anyway."""
        return [point for point in self.points if not end.covers(point)]

    def _best(self, points: list[FrontierPoint]) -> list[FrontierPoint]:
        """At most `keep` points: the best of each measure first, then those with the highest sum."""
        measures = points[0].scores
        extremes = [max(points, key=lambda p: (p.scores.get(m, -math.inf), p.total)) for m in measures]
        by_total = sorted(points, key=lambda p: -p.total)
        chosen = list({point.step: point for point in (*extremes, *by_total)}.values())[: self.keep]
        return sorted(chosen, key=lambda p: p.step)
