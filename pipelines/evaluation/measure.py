"""Measure a checkpoint and put what was found on record, every item of it. What is on record is not measured again."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from db.views import Checkpoint
from evals.measurement_keys import data_hash, measurement_key
from evals.results import Result, item_key, main_result
from evals.splits import secondary_task_limit, split_of
from evals.subject import Subject
from evals.suites.config import content_id, load_suites, suite_files
from evals.suites.custom_checks import read_tasks
from evals.suites.instruction_following import read_prompts
from evals.suites.knowledge import measure_questions, read_questions
from evals.suites.measure import SUITES, is_public_ifeval_available, measure
from evals.suites.passage_recall import read_passages
from pipelines.evaluation.results_store import on_record, put_on_record
from pipelines.job import Job
from pipelines.log import log
from pipelines.models import load_frozen, open_engine
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run

FILES = ("questions", "ifeval_data", "passages")
LEAST_QUESTIONS, LEAST_PASSAGES = 50, 10  # of which a fifth may be looked at while distilling
EARLIER_SUITE = "earlier"  # the suite of questions on the documents of earlier cycles


@dataclass(frozen=True)
class EvalPlan:
    """What to measure by; the same for every checkpoint of a cycle, or they could not be compared."""

    suite: str = "all"
    questions: Path | None = None
    ifeval_data: Path | None = None
    passages: Path | None = None  # of the documents: what of them is known, where nobody brings questions
    limit: int | None = None
    beside: int | None = None  # at most so many of a task that no verdict is about, where there is a limit
    part: str = "all"  # of the items: "probe" while distilling, "final" for the verdict
    earlier: tuple[tuple[int, Path], ...] = ()  # (cycle, its questions)
    public: bool | None = None  # whether the public IFEval is to be had, where it is asked for and that was settled

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "EvalPlan":
        paths = {name: Path(said[name]) for name in FILES if said.get(name)}
        earlier = tuple((int(cycle), Path(file)) for cycle, file in said.get("earlier", ()))
        limit, beside = said["limit"], said.get("beside")
        public = said.get("public")
        return cls(
            said["suite"], limit=limit, beside=beside, part=said["part"], earlier=earlier, public=public, **paths
        )

    def settled(self, named: Mapping[str, str]) -> "EvalPlan":
        """Once for all that is to be held against each other: the network may come and go meanwhile."""
        return replace(self, public=is_public_ifeval_available(named)) if self.may_ask_in_public else self

    @property
    def may_ask_in_public(self) -> bool:
        return self.suite in ("all", "behaviour") and self.ifeval_data is None

    def located(self, home: Path) -> "EvalPlan":
        """With the project's own files where they lie now."""
        files: dict[str, Any] = {name: relocate(home, file) for name, file in self._files.items() if file}
        return replace(self, earlier=tuple((cycle, relocate(home, file)) for cycle, file in self.earlier), **files)

    def to_json(self) -> dict[str, Any]:
        paths = {name: str(file.resolve()) if file else None for name, file in self._files.items()}
        earlier = [[cycle, str(file)] for cycle, file in self.earlier]
        limits = {"limit": self.limit, "beside": self.beside}
        return {"suite": self.suite, "part": self.part, "earlier": earlier, "public": self.public, **limits, **paths}

    @property
    def _files(self) -> dict[str, Path | None]:
        return {name: getattr(self, name) for name in FILES}

    @property
    def asked_earlier(self) -> dict[str, Path]:
        """By task."""
        return {f"cycle:{number}": file for number, file in self.earlier}

    def suites(self, named: Mapping[str, str]) -> list[str]:
        """Those there is something to measure by."""
        if self.suite != "all":
            return [self.suite]
        there = {
            "behaviour": True,
            "knowledge": self.questions or self.passages or named.get("knowledge"),
            "retention": named.get("retention"),
        }
        return [suite for suite in SUITES if there[suite]]

    def too_few_to_part(self, named: Mapping[str, str]) -> str:
        """What of its own files could not be split into items to look at and items for the verdict; empty: nothing."""
        least = {"questions": LEAST_QUESTIONS, "passages of the documents": LEAST_PASSAGES}
        for what, keys in self._keys(named):
            if len(keys) < least.get(what, 1):
                return f"fewer than {least[what]} {what}"
            if len({split_of(key) for key in keys}) < 2:
                return f"too few {what}"
        return ""

    def _keys(self, named: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
        """The keys of the items in its own files, as the parts go by them."""
        if self.questions:
            yield "questions", [item_key(question.text) for question in read_questions(self.questions)]
        elif self.passages:
            yield "passages of the documents", [item_key(passage) for passage in read_passages(self.passages)]
        if self.ifeval_data:
            yield f"prompts in {self.ifeval_data.name}", [prompt.key for prompt in read_prompts(self.ifeval_data)]
        replaced = {"behaviour": self.ifeval_data, "knowledge": self.questions}
        for file in suite_files({suite: tasks for suite, tasks in named.items() if not replaced.get(suite)}):
            if file.suffix == ".jsonl":
                yield f"tasks in {file.name}", [task.key for task in read_tasks(file)]

    def keys(self, weights: str, named: Mapping[str, str]) -> dict[str, str]:
        """Of all that there is something to measure by: the suites, and the questions of earlier cycles."""
        return {what: self.key(weights, what, named) for what in [*self.suites(named), *self.asked_earlier]}

    def key(self, weights: str, suite: str, named: Mapping[str, str]) -> str:
        """What a measurement is decided by: two with the same key would find the same."""
        files = {"behaviour": [self.ifeval_data], "knowledge": [self.questions, self.passages]}
        content = "/".join(data_hash(file) for file in files.get(suite, [self.asked_earlier.get(suite)]))
        tasks = content_id(named[suite]) if suite in named else None
        beside = secondary_task_limit(self.limit, self.beside) if suite in ("behaviour", "retention") else self.limit
        asked = {"limit": self.limit, "beside": beside, "part": self.part, "named": tasks}
        if suite == "behaviour" and self.public is not None:
            asked["public"] = self.public
        return measurement_key(weights, suite, content, {**asked, "version": version("recover")})[:16]

    def take(self, subject: Subject, what: str, named: Mapping[str, str]) -> list[Result]:
        """One suite, or the questions of one earlier cycle ("cycle:3")."""
        if file := self.asked_earlier.get(what):
            questions = read_questions(file)[: self.limit]
            return [measure_questions(subject, questions, task=what, suite=EARLIER_SUITE, data=file.name)]
        return measure(
            subject,
            what,
            limit=self.limit,
            secondary_limit=self.beside,
            ifeval_data=self.ifeval_data,
            questions=self.questions,
            passages=self.passages,
            suites=named,
            split=self.part,
            public=self.public,
        )


def is_measured(project: Project, checkpoint: Checkpoint, measures: EvalPlan) -> bool:
    """Whether all of it is on record."""
    keys = set(measures.keys(project.weights(checkpoint), load_suites(project.base)).values())
    return keys == on_record(project, checkpoint, keys).keys()


def measure_checkpoint(
    project: Project,
    checkpoint: Checkpoint,
    measures: EvalPlan,
    cycle: int | None,
    name: str = "",
    *,
    engine: str = "transformers",
    job: Job | None = None,
    stage: str = "",
    again: bool = False,
) -> list[Result]:
    name = name or checkpoint.reference
    named = load_suites(project.base)
    keys = measures.keys(project.weights(checkpoint), named)
    known = {} if again else on_record(project, checkpoint, set(keys.values()))
    missing = [what for what, key in keys.items() if key not in known]
    log.info(f"measuring {name}" if missing else f"{name} was measured before")
    if missing:
        student = load_frozen(checkpoint.path)
        with recorded_run(project, "eval", cycle, measures.to_json(), 0, job, stage) as run:
            with open_engine(student, engine) as writes:
                subject = Subject(writes, student.chat)
                found = {keys[what]: measures.take(subject, what, named) for what in missing}
            put_on_record(project, checkpoint, run, found)
        known |= found
    results = [result for key in keys.values() for result in known[key]]
    log.info("  " + " · ".join(summary(results)))
    return results


def summary(results: Iterable[Result]) -> list[str]:
    results = list(results)
    suites = dict.fromkeys(result.suite for result in results if result.suite in SUITES)
    mains = {suite: main_result(results, suite) for suite in suites}
    return [
        f"{suite} {main.headline.value:.3f}{'' if main.is_share else ' bits a byte'} (n = {main.headline.n})"
        for suite, main in mains.items()
        if main
    ]


def knowledge_of(results: Iterable[Result]) -> Result | None:
    """What the gate judges knowledge by: shares of things known, never bits."""
    main = main_result(results, "knowledge")
    return main if main is not None and main.is_share else None


def earlier_results(results: Iterable[Result]) -> dict[int, Result]:
    """By cycle: how much is known of what earlier cycles taught."""
    return {int(r.task.removeprefix("cycle:")): r for r in results if r.suite == EARLIER_SUITE}
