"""Measure a checkpoint and store the results, with every item, in the record. Stored results are reused.

Instruction prompts may be asked block by block: what is stored of them then, and what is still to be asked.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from db.headline_scores import MEASURES
from db.tables import Checkpoint, Evaluation, RunInputs
from evals.results import Item, Metric, Result, Tokens, headline, main_result
from evals.splits import Blocks
from evals.stats.sequential import look_sizes
from evals.subject import Subject
from evals.suites.config import load_suites
from pipelines.evaluation.evaluation_plan import EARLIER_SUITE, EvalPlan
from pipelines.log import log
from pipelines.model_loading import engine_and_precision, load_frozen, open_engine
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName
from pipelines.storage import JsonLines
from recovery.engines.transformers import TransformersEngine

SUITE = "behaviour"
KEY, COST = "measured", "cost"  # what the record keeps in an evaluation's settings besides the settings themselves
ENGINE = "engine"  # a setting of every result: what the model answered with


@dataclass(frozen=True)
class StopRule:
    """When enough prompts have been asked."""

    block: int
    total: int  # prompts that there are
    enough: Callable[[list[Item]], bool]  # by the items of complete blocks
    # By the other suites: then one block is enough.
    fails_anyway: Callable[[list[Result]], bool] = lambda others: False


def is_measured(project: Project, checkpoint: Checkpoint, plan: EvalPlan, engine: EngineName = DEFAULT_ENGINE) -> bool:
    keys = set(plan.keys(weights_and_engine(project, checkpoint, engine), load_suites(project.base)).values())
    return keys == stored_results(project, checkpoint, keys).keys()


def weights_and_engine(project: Project, checkpoint: Checkpoint, engine: EngineName) -> str:
    """What is measured, for keys of measurements."""
    return f"{project.weights_id(checkpoint)}/{engine_and_precision(checkpoint.path, engine)}"


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
    named, model = load_suites(project.base), weights_and_engine(project, checkpoint, engine)
    keys = plan.keys(model, named)
    by_key = {} if rerun else stored_results(project, checkpoint, set(keys.values()))
    in_blocks, earlier = None, list[Result]()
    if rule and keys.get(SUITE) not in by_key:
        in_blocks = BlockMeasurement(project, checkpoint, model, plan, named, rule)
        others_stored = all(key in by_key for suite, key in keys.items() if suite != SUITE)
        earlier, are_enough = in_blocks.stored(others_stored and rule.fails_anyway(_of_others(keys, by_key)))
        if are_enough:
            keys[SUITE] = in_blocks.key(len(_items(earlier)))
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
            # vLLM may have refused.
            used = "transformers" if isinstance(opened, TransformersEngine) else engine
            answers_with = engine_and_precision(checkpoint.path, used)
            for suite in missing:
                if in_blocks and suite == SUITE:
                    blocks = in_blocks.to_ask(earlier, in_blocks.rule.fails_anyway(_of_others(keys, by_key)))
                    results = plan.run_suite(subject, suite, named, blocks)
                    keys[suite] = in_blocks.key(len(_items(results)))
                else:
                    results = plan.run_suite(subject, suite, named)
                results = [replace(result, settings=result.settings | {ENGINE: answers_with}) for result in results]
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
    results = list(results)
    lines = []
    for measure, words in MEASURES.items():
        metric, main = headline(results, measure), main_result(results, measure)
        if metric and main:
            unit = "" if main.is_share else f" {main.headline_name.replace('_', ' ')}"
            lines.append(f"{words} {metric.value:.3f}{unit} (n = {metric.n})")
    return lines


def knowledge_result(results: Iterable[Result]) -> Result | None:
    """The knowledge result that the gate judges: a share of right answers; None if only bits per byte were measured."""
    return main_result([result for result in results if result.is_share], "knowledge")


def earlier_results(results: Iterable[Result]) -> dict[int, Result]:
    return {int(r.task.removeprefix("cycle:")): r for r in results if r.suite == EARLIER_SUITE}


@dataclass(frozen=True)
class BlockMeasurement:
    """The instruction prompts that one checkpoint is asked by a stop rule."""

    project: Project
    checkpoint: Checkpoint
    model: str  # its weights, whose hash takes long of a model from outside, and what it answers with
    plan: EvalPlan
    named: Mapping[str, str]
    rule: StopRule

    def key(self, prompts: int) -> str:
        return self.plan.key(self.model, SUITE, self.named, prompts if prompts < self.rule.total else None)

    def stored(self, fails_anyway: bool) -> tuple[list[Result], bool]:
        """The suite's stored results with the most prompts, and whether these are enough."""
        keys = {self.key(n): n for n in look_sizes(self.rule.total, self.rule.block)}
        stored = stored_results(self.project, self.checkpoint, set(keys))
        results = max(stored.values(), key=lambda results: len(_items(results)), default=[])
        items = _items(results)
        return results, len(items) == self.rule.total or (bool(items) and (fails_anyway or self.rule.enough(items)))

    def to_ask(self, stored: list[Result], fails_anyway: bool) -> Blocks:
        """What remains to be asked; every block is saved as soon as it is answered."""
        saved = [Item(**row) for row in self._progress] if self._progress.repair() else []
        complete = [n for n in (0, *look_sizes(self.rule.total, self.rule.block)) if n <= len(saved)]
        earlier = max(saved[: complete[-1]], _items(stored), key=len)
        self._progress.write(map(asdict, earlier))
        save = lambda items: self._progress.append(map(asdict, items))  # noqa: E731
        return Blocks(self.rule.block, (lambda items: True) if fails_anyway else self.rule.enough, earlier, save)

    def delete_progress(self) -> None:
        self._progress.path.unlink(missing_ok=True)

    @property
    def _progress(self) -> JsonLines:
        return JsonLines(self.project.cache.path("blocks", self.key(self.rule.total), ".jsonl"))


def _items(results: list[Result]) -> list[Item]:
    main = main_result(results, SUITE)
    return main.items if main else []


def store_results(
    project: Project, checkpoint: Checkpoint, run: int | None, key: str, results: Iterable[Result]
) -> None:
    """Store the results of a measurement key in one transaction, so that a stored key is always complete."""
    rows = [result.to_json(items=True) for result in results]
    with_key = [row | {"settings": row["settings"] | {KEY: key, COST: row["cost"]}} for row in rows]
    project.tracker.evaluations(checkpoint.id, run, with_key)


def stored_results(project: Project, checkpoint: Checkpoint, keys: set[str]) -> dict[str, list[Result]]:
    """The latest stored results by measurement key; keys without any are missing."""
    by_key: dict[str, dict[str, Evaluation]] = {}
    for evaluation in project.reader.evaluations(checkpoint.id):
        key = evaluation.settings.get(KEY)
        if key in keys:
            by_key.setdefault(key, {})[evaluation.task] = evaluation
    return {key: [as_result(project, e) for e in tasks.values()] for key, tasks in by_key.items()}


def copy_results(project: Project, source: Checkpoint, copy: Checkpoint) -> None:
    """Store a checkpoint's results under a copy of it, which has none yet. Copying them took no time."""
    by_key: dict[str, list[Evaluation]] = {}
    for evaluation in project.reader.evaluations(source.id):
        by_key.setdefault(evaluation.settings[KEY], []).append(evaluation)
    done = {evaluation.settings.get(KEY) for evaluation in project.reader.evaluations(copy.id)}
    for key, rows in by_key.items():
        if key in done:
            continue
        results = [replace(as_result(project, row), seconds=0.0, tokens=None) for row in rows]
        store_results(project, copy, rows[0].run_id, key, results)


def comparable_results(project: Project, checkpoint: Checkpoint, results: Iterable[Result]) -> list[Result]:
    """For each result, the checkpoint's stored result of the same task, data and settings with the most items, if
    there is one. Limit and blocks may differ, and parts but for lm-eval tasks; nothing is measured."""
    stored = project.reader.evaluations(checkpoint.id)
    largest = [max((e for e in stored if _method(e) == _method(r)), key=_size, default=None) for r in results]
    return [as_result(project, e) for e in largest if e is not None]


def _method(result: Result | Evaluation) -> tuple[Any, ...]:
    """How something was measured, apart from which items.

    The examples in the prompts of an lm-eval task depend on the part of its items that is asked."""
    which = (KEY, COST, "limit", "block", "of") + ("part",) * (result.data not in ("lm-eval", "local"))
    settings = {name: value for name, value in result.settings.items() if name not in which}
    return result.suite, result.task, settings.get("content") or result.data, settings


def _size(e: Evaluation) -> tuple[int, int]:
    return max((score.n for score in e.scores.values()), default=0), e.id


def as_result(project: Project, e: Evaluation) -> Result:
    metrics = {
        name: Metric(_number(s.value), s.n, _number(s.stderr), (_number(s.low), _number(s.high)))
        for name, s in e.scores.items()
    }
    items = [
        Item(item.key, item.prompt, item.answer, bool(item.passed), item.verdicts or {})
        for item in project.reader.items(e.id)
    ]
    cost = e.settings.get(COST)
    tokens = Tokens(cost["tokens_read"], cost["tokens_written"]) if cost else None
    settings = {name: value for name, value in e.settings.items() if name not in (KEY, COST)}
    return Result(e.task, e.suite, e.data, metrics, items, settings, e.seconds, tokens)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
