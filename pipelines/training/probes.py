"""A look at a student while it learns: what the gate asks, on items that the verdict will not see.

So few items cannot show anything with certainty, or nothing would ever stop early: a look holds when no more than half
the margin is lost on them and knowledge is kept within its standard error, and it takes two such looks in a row. The
verdict, on the other items, is by the bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from evals.results import Result, main_result
from evals.subject import Subject
from pipelines.evaluation.measure import EvalPlan, knowledge_result
from pipelines.gate import Judgement, judge
from pipelines.settings import Gate
from pipelines.training.early_stopping import Look, Probe
from pipelines.training.mix_search import ProbeScores, Score
from recovery.engines import Engine
from recovery.models.students import Student


@dataclass(frozen=True)
class Prober:
    gate: Gate
    measures: EvalPlan  # of the probe part
    clean: list[Result]  # what the clean model scores on it
    suites: dict[str, str]

    def __call__(self, student: Student, engine: Engine) -> Look:
        def look(best: float | None) -> Probe:
            engine.sync(student)
            behaviour, knowledge = _asked(Subject(engine, student.chat), self.measures, self.suites)
            clean = main_result(self.clean, "behaviour")
            assert clean is not None
            known = knowledge.headline.value if knowledge else None
            best = max((k for k in (known, best) if k is not None), default=None)
            verdict = judge(self.gate, clean, behaviour, knowledge, best)
            lost = -verdict.behaviour.value
            kept = knowledge is None or verdict.knowledge is None or _not_shown_lost(knowledge, verdict.knowledge)
            return Probe(behaviour.headline.value, known, lost, kept and lost <= self.gate.behaviour_margin / 2)

        return look


@dataclass(frozen=True)
class ReadingProber:
    """What a short mid-training came to: scores alone, for such models are held against each other."""

    measures: EvalPlan  # of the probe part
    suites: dict[str, str]

    def __call__(self, student: Student, engine: Engine) -> ProbeScores:
        behaviour, knowledge = _asked(Subject(engine, student.chat), self.measures, self.suites)
        return ProbeScores(Score.of(behaviour.headline), Score.of(knowledge.headline) if knowledge else None)

    def key(self, weights: str) -> list[str]:
        """Of what is asked."""
        return [self.measures.key(weights, suite, self.suites) for suite in ("behaviour", "knowledge")]


def _asked(subject: Subject, measures: EvalPlan, suites: dict[str, str]) -> tuple[Result, Result | None]:
    found = measures.run_suite(subject, "behaviour", suites)
    if measures.questions or measures.passages:
        found += measures.run_suite(subject, "knowledge", suites)
    behaviour = main_result(found, "behaviour")
    assert behaviour is not None
    return behaviour, knowledge_result(found)


def _not_shown_lost(knowledge: Result, kept: Judgement) -> bool:
    """Against the best of several looks at a few dozen questions, one answer more or less must not decide."""
    spread = knowledge.headline.stderr
    return kept.value + (spread if math.isfinite(spread) else 0.0) >= kept.limit


def probing(
    gate: Gate,
    measures: EvalPlan,
    items: int,
    measure_clean: Callable[[EvalPlan], list[Result]],
    suites: dict[str, str],
) -> Prober:
    """The clean model is measured on the probe part first, by whoever keeps the record."""
    part = probe_part(measures, items)
    return Prober(gate, part, measure_clean(replace(part, suite="behaviour")), suites)


def probe_part(measures: EvalPlan, items: int) -> EvalPlan:
    passages = None if measures.questions else measures.passages  # one reading of what is known is enough for a look
    limit = min(items, measures.limit or items)  # a look asks no more than the verdict may
    return replace(measures, suite="all", split="probe", limit=limit, earlier_questions=(), passages=passages)
