"""`recover check`: what a fine-tune has forgotten of its base, and what it learned.

The rows are measures, their tasks and kinds of items, with intervals.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from db.headline_scores import MEASURES
from db.verdicts import cannot_be_missed
from evals.results import Metric, Result, main_result, paired_results, pooled_passes
from evals.stats.paired_comparison import paired_test
from evals.stats.sequential import look_levels, look_sizes
from pipelines.cycle import Cycle
from pipelines.evaluation.printed_tables import verdict_table
from pipelines.gate.verdict import Verdict
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.turn_ends import TurnEnds, examine_turn_ends

SENTENCES = {
    "passed": "{model} has kept what {base} could do",
    "failed": "{model} has forgotten more than the gate allows",
    "inconclusive": "There are too few items to tell whether {model} has forgotten more than the gate allows",
}
BLIND = "{base} follows too few instructions to tell whether {model} has forgotten more than the gate allows"
TWO_SIDED = 0.025  # the level of each bound of a 95 % interval
LEARNED_BY = {"closed_book": "questions", "cloze": "recall of documents", "answers": "likelihood of answers"}
NAMES = ("base", "model")
Passes = dict[str, bool]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A score of the base and of the fine-tune on the same items; the interval is that of the difference."""

    name: str
    suite: str
    task: str | None = None
    kind: str | None = None
    base: float
    model: float
    difference: float
    ci95: tuple[float, float]
    n: int
    lost: int | None = None
    gained: int | None = None

    @classmethod
    def of_passes(cls, base: Passes, model: Passes, level: float = TWO_SIDED, **about: Any) -> "Change":
        test = paired_test(base, model, 1 - level)
        before = sum(base[key] for key in base if key in model) / test.n
        return cls(
            base=before,
            model=before + test.difference,
            difference=test.difference,
            ci95=(test.low, test.high),
            n=test.n,
            lost=len(test.lost),
            gained=len(test.gained),
            **about,
        )

    @property
    def is_part(self) -> bool:
        """Whether the row above it, or one further up, has it included."""
        return self.suite != "knowledge" and bool(self.task or self.kind)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "ci95": [None if value != value else value for value in self.ci95]}


@dataclass(frozen=True)
class CheckResult:
    model: str
    base: str
    verdict: Verdict
    forgotten: list[Change]
    learned: list[Change]
    notes: list[str]
    turn_ends: TurnEnds

    @property
    def summary(self) -> str:
        is_blind = self.verdict.outcome == "inconclusive" and cannot_be_missed(vars(self.verdict.behaviour))
        sentence = BLIND if is_blind else SENTENCES[self.verdict.outcome]
        sentence = sentence.format(model=self.model, base=self.base)
        why = "" if self.verdict.passed else f": {self.verdict.reason}"
        of_turns = f" Its turns do not end as they should: {fault.what}." if (fault := self.turn_ends.fault) else ""
        return f"{sentence}{why}.{of_turns}"

    def lines(self) -> list[str]:
        return [
            self.summary,
            *verdict_table(self.verdict.as_dict(), NAMES),
            "",
            *change_table([*self.forgotten, *self.learned]),
            *self.turn_ends.lines(),
            *self.notes,
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.model,
            "base": self.base,
            "outcome": self.verdict.outcome,
            "summary": self.summary,
            "verdict": self.verdict.as_dict(),
            "forgotten": [row.as_json() for row in self.forgotten],
            "learned": [row.as_json() for row in self.learned],
            "notes": self.notes,
            "turn_ends": self.turn_ends.as_json(),
        }


def check_model(project: Project, job: Job, model: str) -> CheckResult:
    """Measure both and judge. All items count: a check trains nothing, so it needs no probes."""
    distill = job.settings.distill.model_copy(update={"probe_every": 0})
    job = replace(job, settings=job.settings.model_copy(update={"distill": distill}))
    path, notes = project.path_of(model), list(job.notes)
    if job.fixed:  # it has a chat template of its own, and the job a copy with that of the base
        with_template = replace(job, student=project.resolve(path).id, id=f"{job.id}-own")
        clean, results, verdict = Cycle(project, with_template).judge_student()
        _, with_base_template, _ = Cycle(project, job).judge_student()
        mains = (main_result(side, "behaviour") for side in (with_base_template, results))
        a, b = (main.headline.value for main in mains if main)  # tells the template apart from the weights
        notes.append(
            f"With the chat template of {project.base_name} it follows {a:.3f} of the instructions, with its own "
            f"{b:.3f}: `recover repair` keeps that of {project.base_name}"
        )
    else:
        clean, results, verdict = Cycle(project, job).judge_student()
    forgotten, learned = forgotten_rows(clean, results), learned_rows(clean, results)
    turn_ends = examine_turn_ends(path, project.base, project.cache)
    return CheckResult(model, project.base_name, verdict, forgotten, learned, notes, turn_ends)


def forgotten_rows(base: Sequence[Result], model: Sequence[Result]) -> list[Change]:
    """Instruction following and what the base knew before, each followed by its tasks and kinds."""
    return [*_behaviour(base, model), *_retention(base, model)]


def learned_rows(base: Sequence[Result], model: Sequence[Result]) -> list[Change]:
    """New knowledge, by each task that measures it."""
    rows = []
    for before, after in _shares(base, model, "knowledge"):
        name = f"{MEASURES['knowledge']} ({LEARNED_BY.get(after.task, after.task)})"
        rows.append(_of_results(before, after, name))
    return rows


def change_table(rows: Sequence[Change]) -> list[str]:
    labels = [("  " if row.is_part else "") + row.name for row in rows]
    width = max(24, *map(len, labels))
    lines = [f"{'':<{width}}{NAMES[0]:>7}{NAMES[1]:>8}{'difference, 95 % interval':>27}{'n':>7}"]
    for label, row in zip(labels, rows, strict=True):
        low, high = row.ci95
        interval = f"{row.difference:+.3f} [{low:+.3f}, {high:+.3f}]" if low == low else f"{row.difference:+.3f}"
        lines.append(f"{label:<{width}}{row.base:>7.3f}{row.model:>8.3f}{interval:>27}{row.n:>7,}")
    return lines


def _shares(base: Sequence[Result], model: Sequence[Result], suite: str) -> list[tuple[Result, Result]]:
    """The results of a suite that both have, but for those of which less is better."""
    return [pair for pair in paired_results(base, model, suite) if pair[0].is_share]


def _behaviour(base: Sequence[Result], model: Sequence[Result]) -> Iterator[Change]:
    before, after = main_result(base, "behaviour"), main_result(model, "behaviour")
    if before is None or after is None:
        return
    level = _look_level(after)
    passes = before.passed_by_key(), after.passed_by_key()
    yield Change.of_passes(*passes, level, name=MEASURES["behaviour"], suite="behaviour")
    yield from _by_kind(before, after, level)
    for other, now in _shares(base, model, "behaviour"):
        if other is not before:
            yield _of_results(other, now, _words(other.task))


def _retention(base: Sequence[Result], model: Sequence[Result]) -> Iterator[Change]:
    pairs = _shares(base, model, "retention")
    judged = [(before, after) for before, after in pairs if before.is_pass_rate and after.is_pass_rate]
    if judged:
        base_passes, passes = (pooled_passes(side) for side in zip(*judged, strict=True))
        yield Change.of_passes(base_passes, passes, name=MEASURES["retention"], suite="retention")
    for before, after in pairs:
        if len(pairs) > 1 or not _kinds(before):
            yield _of_results(before, after, _words(before.task))
        yield from _by_kind(before, after)


def _by_kind(before: Result, after: Result, level: float = TWO_SIDED) -> Iterator[Change]:
    kinds = _kinds(before)
    for kind, passes in _kinds(after).items():
        if kind in kinds and passes.keys() & kinds[kind].keys():
            yield Change.of_passes(kinds[kind], passes, level, name=_words(kind), suite=before.suite, kind=kind)


def _of_results(before: Result, after: Result, name: str) -> Change:
    """Item by item; of graded items, the mean difference."""
    about: dict[str, Any] = {"name": name, "suite": before.suite, "task": before.task}
    if before.is_pass_rate and after.is_pass_rate:
        return Change.of_passes(before.passed_by_key(), after.passed_by_key(), **about)
    grades = [
        {item.key: item.verdicts["likelihood"] for item in result.items if "likelihood" in item.verdicts}
        for result in (before, after)
    ]
    keys = [key for key in grades[0] if key in grades[1]]
    if not keys:  # grades that are not stored item by item
        a, b = before.headline, after.headline
        gain = Metric(b.value - a.value, b.n, math.nan, (math.nan, math.nan))
    else:
        a, b = (Metric.from_values([side[key] for key in keys]) for side in grades)
        gain = Metric.from_values([grades[1][key] - grades[0][key] for key in keys])
    return Change(base=a.value, model=b.value, difference=gain.value, ci95=gain.ci95, n=gain.n, **about)


def _look_level(after: Result) -> float:
    """The level of each bound, so that the interval holds for all looks if prompts were asked in blocks."""
    block, of = (after.settings.get(name, 0) for name in ("block", "of"))
    if not block:
        return TWO_SIDED
    sizes = look_sizes(of, block)
    levels = dict(zip(sizes, look_levels(tuple(sizes), TWO_SIDED), strict=True))
    return levels.get(len(after.items), levels[sizes[0]])


def _kinds(result: Result) -> dict[str, Passes]:
    """Whether each item passed, by its kind; of a prompt's instructions, whether all of a kind were followed."""
    kinds: dict[str, Passes] = defaultdict(dict)
    for item in result.items:
        followed = zip(item.verdicts.get("instructions", ()), item.verdicts.get("strict", ()), strict=False)
        for name, passed in [*followed, (item.verdicts.get("kind", ""), item.passed)]:
            kind = kinds[name.partition(":")[0]]
            kind[item.key] = kind.get(item.key, True) and passed
    kinds.pop("", None)
    return dict(sorted(kinds.items()))


def _words(name: str) -> str:
    return name.replace("_", " ")
