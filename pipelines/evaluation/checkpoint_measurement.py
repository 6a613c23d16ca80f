"""Measure a checkpoint and store the results, with every item, in the record. Stored results are reused."""

from collections.abc import Iterable, Mapping

from db.tables import Checkpoint, RunInputs
from evals.results import MEASURES, Result, headline, main_result
from evals.subject import Subject
from evals.suites.config import load_suites
from pipelines.evaluation.block_measurement import SUITE, BlockMeasurement, StopRule
from pipelines.evaluation.evaluation_plan import EARLIER_SUITE, EvalPlan
from pipelines.evaluation.results_store import store_results, stored_results
from pipelines.log import log
from pipelines.model_loading import load_frozen, open_engine
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName


def is_measured(project: Project, checkpoint: Checkpoint, plan: EvalPlan) -> bool:
    """Whether the record has all results of the plan."""
    return not missing_suites(project, checkpoint, plan)


def missing_suites(project: Project, checkpoint: Checkpoint, plan: EvalPlan) -> list[str]:
    """The suites, and questions of earlier cycles, whose results are not in the record."""
    keys = plan.keys(project.measured_id(checkpoint), load_suites(project.base))
    stored = stored_results(project, checkpoint, set(keys.values()))
    return [suite for suite, key in keys.items() if key not in stored]


def measure_checkpoint(
    project: Project,
    checkpoint: Checkpoint,
    plan: EvalPlan,
    cycle: int | None,
    name: str = "",
    *,
    engine: EngineName = DEFAULT_ENGINE,
    inputs: RunInputs = RunInputs(),  # noqa: B008
    rerun: bool = False,
    rule: StopRule | None = None,
) -> list[Result]:
    """The results of the plan; suites that are not stored yet (with `rerun` all) are measured and stored.

    `name` is for progress messages. With a rule, instruction prompts are asked last, in blocks until they are enough.
    """
    name = name or checkpoint.reference
    named = load_suites(project.base)
    keys = plan.keys(project.measured_id(checkpoint), named)
    by_key = {} if rerun else stored_results(project, checkpoint, set(keys.values()))
    in_blocks = (
        BlockMeasurement(project, checkpoint, plan, named, rule) if rule and keys.get(SUITE) not in by_key else None
    )
    earlier: list[Result] = []
    if in_blocks:
        others_stored = all(key in by_key for suite, key in keys.items() if suite != SUITE)
        earlier, are_enough = in_blocks.stored(others_stored and in_blocks.rule.fails_anyway(_of_others(keys, by_key)))
        if are_enough:
            keys[SUITE] = in_blocks.key_of(earlier)
            by_key[keys[SUITE]] = earlier
    missing = [suite for suite, key in keys.items() if key not in by_key]
    missing.sort(key=SUITE.__eq__)
    log.info(f"Measuring {name}" if missing else f"Reusing the stored results of {name}")
    if missing:
        student = load_frozen(checkpoint.path)
        with (
            recorded_run(project, "eval", cycle, plan.to_json(), 0, inputs) as run,
            open_engine(student, engine) as opened,
        ):
            subject = Subject(opened, student.chat)
            for suite in missing:
                blocks = None
                if in_blocks and suite == SUITE:
                    blocks = in_blocks.to_ask(earlier, in_blocks.rule.fails_anyway(_of_others(keys, by_key)))
                results = plan.run_suite(subject, suite, named, blocks)
                keys[suite] = in_blocks.key_of(results) if in_blocks and suite == SUITE else keys[suite]
                by_key[keys[suite]] = results
                store_results(project, checkpoint, run, keys[suite], results)
        if in_blocks:
            in_blocks.delete_progress()
    results = [result for key in keys.values() for result in by_key[key]]
    if lines := summary_lines(results):
        log.info("  " + " · ".join(lines))
    return results


def _of_others(keys: Mapping[str, str], by_key: Mapping[str, list[Result]]) -> list[Result]:
    return [result for suite, key in keys.items() if suite != SUITE for result in by_key[key]]


def summary_lines(results: Iterable[Result]) -> list[str]:
    """One line per measure."""
    results = list(results)
    lines = []
    for measure in MEASURES:
        metric, main = headline(results, measure), main_result(results, measure)
        if metric and main:
            unit = "" if main.is_share else " bits per byte"
            lines.append(f"{measure} {metric.value:.3f}{unit} (n = {metric.n})")
    return lines


def knowledge_result(results: Iterable[Result]) -> Result | None:
    """The knowledge result that the gate judges: a share of right answers; None if only bits per byte were measured."""
    main = main_result(results, "knowledge")
    return main if main is not None and main.is_share else None


def earlier_results(results: Iterable[Result]) -> dict[int, Result]:
    """The results on the questions of earlier cycles, by cycle number."""
    return {int(r.task.removeprefix("cycle:")): r for r in results if r.suite == EARLIER_SUITE}
