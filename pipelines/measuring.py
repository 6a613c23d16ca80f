"""Measure a checkpoint and put what was found on record, every item of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from db.views import Checkpoint
from evals.results import Result, main_result
from evals.subject import Subject
from evals.suites import measure
from pipelines.project import Project
from pipelines.stages import Say, frozen, recorded_run
from recovery.engines.transformers import TransformersEngine
from recovery.students import describe


@dataclass(frozen=True)
class Measures:
    """What to measure by; the same for every checkpoint of a cycle, or they could not be compared."""

    suite: str = "all"
    questions: Path | None = None
    ifeval_data: Path | None = None
    limit: int | None = None


def measure_checkpoint(
    project: Project, checkpoint: Checkpoint, measures: Measures, cycle: int | None, say: Say, name: str = ""
) -> list[Result]:
    say(f"measuring {name or checkpoint.reference}")
    student = frozen(checkpoint.path)
    settings = {k: str(v) for k, v in vars(measures).items() if v is not None}
    with recorded_run(project, "eval", cycle, settings, seed=0) as run:
        results = measure(
            Subject(TransformersEngine(student), student.chat),
            measures.suite,
            limit=measures.limit,
            ifeval_data=measures.ifeval_data,
            questions=measures.questions,
            suites=describe(project.base).get("suites"),
        )
        for result in results:
            project.tracker.evaluation(checkpoint.id, run, result.to_json(items=True))
    say("  " + " · ".join(summary(results)))
    return results


def summary(results: Iterable[Result]) -> list[str]:
    results = list(results)
    suites = dict.fromkeys(result.suite for result in results)
    mains = {suite: main_result(results, suite) for suite in suites}
    return [f"{suite} {main.headline.value:.3f} (n = {main.headline.n})" for suite, main in mains.items() if main]
