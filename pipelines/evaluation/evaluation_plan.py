"""The plan of an evaluation: which suites, on which data, and on which split of the items."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from db.tables import Checkpoint, Run
from evals.benchmarks import local_data_hash
from evals.downloads import ifeval_checkers
from evals.measurement_keys import data_hash, measurement_key
from evals.results import Result, item_key
from evals.splits import Blocks, Split, secondary_task_limit, split_of
from evals.subject import Subject
from evals.suites.config import SUITES, content_id, suite_files
from evals.suites.custom_checks import read_tasks
from evals.suites.general import FACTS
from evals.suites.instruction_following import read_prompts
from evals.suites.knowledge import measure_questions, read_questions
from evals.suites.suite_measurement import (
    count_prompts,
    count_retention_items,
    is_public_ifeval_available,
    measure,
    of_file,
    suite_tasks,
)
from evals.suites.training_texts import conversation_key, has_conversations, read_conversations, read_passages
from pipelines.project.locations import relocate
from pipelines.project.project import Project

FILES = ("questions", "ifeval_data", "passages")  # fields of EvalPlan that are files
MIN_QUESTIONS, MIN_PASSAGES, MIN_CONVERSATIONS = 50, 10, 50  # fewer are not split into a probe part and a final part
EARLIER_SUITE = "earlier"  # the suite of the questions of earlier cycles


@dataclass(frozen=True)
class EvalPlan:
    """What to measure; all checkpoints of a cycle share one plan, or they could not be compared."""

    suite: str = "all"
    questions: Path | None = None
    ifeval_data: Path | None = None
    passages: Path | None = None  # of the documents, or conversations: knowledge where there are no questions
    limit: int | None = None  # items per task
    secondary_limit: int | None = None  # with `limit`: a lower limit of tasks that need fewer items
    split: Split = "all"  # of the items: "probe" during training, "final" for the verdict
    earlier_questions: tuple[tuple[int, Path], ...] = ()  # (cycle, its questions)
    public_ifeval: bool | None = None  # whether the public IFEval is reachable, once that was checked
    probe_all: bool = False  # probes measure every suite, not only instruction following and new knowledge

    def to_json(self) -> dict[str, Any]:
        paths = {name: str(file.resolve()) if file else None for name, file in self._files.items()}
        earlier = [[cycle, str(file)] for cycle, file in self.earlier_questions]
        return {**vars(self), **paths, "earlier_questions": earlier}

    def with_public_ifeval_checked(self, suites: Mapping[str, str]) -> "EvalPlan":
        """Check once whether the public IFEval is reachable, so that all checkpoints are measured on the same prompts
        even if the network changes meanwhile."""
        return replace(self, public_ifeval=is_public_ifeval_available(suites)) if self.may_use_public_ifeval else self

    @property
    def may_use_public_ifeval(self) -> bool:
        return self.suite in ("all", "behaviour") and self.ifeval_data is None

    def relocated(self, home: Path) -> "EvalPlan":
        files: dict[str, Any] = {name: relocate(home, file) for name, file in self._files.items() if file}
        earlier = tuple((cycle, relocate(home, file)) for cycle, file in self.earlier_questions)
        return replace(self, earlier_questions=earlier, **files)

    @property
    def _files(self) -> dict[str, Path | None]:
        return {name: getattr(self, name) for name in FILES}

    @property
    def earlier_tasks(self) -> dict[str, Path]:
        """The questions of earlier cycles by task name ("cycle:3")."""
        return {f"cycle:{number}": file for number, file in self.earlier_questions}

    def suites(self, named: Mapping[str, str]) -> list[str]:
        """The suites that there is data for; `named` are those in the base's recover.json."""
        if self.suite != "all":
            return [self.suite]
        available = {
            "behaviour": True,
            "knowledge": self.questions or self.passages or named.get("knowledge"),
            "retention": suite_tasks("retention", named),
        }
        return [suite for suite in SUITES if available[suite]]

    def limit_for(self, suite: str, items: int, judged: int, named: Mapping[str, str]) -> int | None:
        """The limit that reaches so many items of behaviour or retention, where this one has so many that were judged;
        None if none does. Where their number is not known, a higher one does if there was one."""
        if suite == "behaviour":
            prompts = count_prompts(named, self.ifeval_data, items, self.split, self.public_ifeval)
            return items if (self.limit is not None if prompts is None else prompts >= items) else None

        def count(limit: int | None) -> int:
            return count_retention_items(named, limit, self.secondary_limit, self._split_of(suite)) or 0

        if not (asked := count(self.limit)):
            return None
        # Of tasks of lm-eval that are groups more are judged than the limit says, and none of those with grades.
        limits = range(1, 2 * items * asked // judged + 1)  # half of a high limit is asked
        first = bisect_left(limits, items * asked / judged, key=count)
        return limits[first] if first < len(limits) else None

    def split_problem(self, named: Mapping[str, str]) -> str:
        """Why the items cannot be split into a probe part and a final part; empty if they can."""
        for kind, minimum, keys in self._item_keys(named):
            if len(keys) < minimum:
                return f"fewer than {minimum} {kind}"
            if len({split_of(key) for key in keys}) < 2:
                return f"too few {kind}"
        return ""

    def _item_keys(self, named: Mapping[str, str]) -> Iterator[tuple[str, int, list[str]]]:
        """The kind of the items in each local file, how many there must be, and their keys, which decide the part that
        an item belongs to."""
        if self.questions:
            yield "questions", MIN_QUESTIONS, [item_key(question.text) for question in read_questions(self.questions)]
        elif self.passages and has_conversations(self.passages):
            yield "conversations", MIN_CONVERSATIONS, list(map(conversation_key, read_conversations(self.passages)))
        elif self.passages:
            keys = [item_key(passage) for passage in read_passages(self.passages)]
            yield "passages of the documents", MIN_PASSAGES, keys
        if self.ifeval_data:
            yield f"prompts in {self.ifeval_data.name}", 1, [prompt.key for prompt in read_prompts(self.ifeval_data)]
        replaced = {"behaviour": self.ifeval_data, "knowledge": self.questions}
        for file in suite_files({suite: tasks for suite, tasks in named.items() if not replaced.get(suite)}):
            if file.suffix == ".jsonl":
                yield f"tasks in {file.name}", 1, [task.key for task in read_tasks(file)]

    def keys(self, model: str, named: Mapping[str, str]) -> dict[str, str]:
        return {suite: self.key(model, suite, named) for suite in [*self.suites(named), *self.earlier_tasks]}

    def key(self, model: str, suite: str, named: Mapping[str, str], prompts: int | None = None) -> str:
        """A hash of everything that determines the results of a suite: equal keys, equal results.

        `model`: its weights, and what it answers with.
        `prompts`: how many prompts of its main task were asked, if these are not all.
        The names in the hashed settings must not change, or stored results would not be reused."""
        files = {"behaviour": [self.ifeval_data], "knowledge": [self.questions, self.passages]}
        content = "/".join(data_hash(file) for file in files.get(suite, [self.earlier_tasks.get(suite)]))
        is_secondary = suite in ("behaviour", "retention")
        settings = {
            "limit": self.limit,
            "beside": secondary_task_limit(self.limit, self.secondary_limit) if is_secondary else self.limit,
            "part": self._split_of(suite),
            "named": content_id(named[suite]) if suite in named else None,
        }
        if prompts is not None:
            settings["prompts"] = prompts
        if suite == "behaviour" and self.public_ifeval is not None:
            settings["public"] = self.public_ifeval
        if suite == "behaviour" and ifeval_checkers()[1] == "plain":
            settings["sentences"] = "plain"  # counted otherwise
        if suite == "retention" and "general" in suite_tasks(suite, named):
            settings["general"] = data_hash(FACTS)
        if local_data := local_data_hash(suite_tasks(suite, named)):
            settings["local_data"] = local_data
        return measurement_key(model, suite, content, {**settings, "version": version("recover")})[:16]

    def run_suite(
        self, subject: Subject, suite: str, named: Mapping[str, str], blocks: Blocks | None = None
    ) -> list[Result]:
        """Measure one suite, or the questions of one earlier cycle ("cycle:3")."""
        if file := self.earlier_tasks.get(suite):
            questions = read_questions(file)[: self.limit]
            return of_file(
                file, [measure_questions(subject, questions, task=suite, suite=EARLIER_SUITE, data=file.name)]
            )
        return measure(
            subject,
            suite,
            limit=self.limit,
            secondary_limit=self.secondary_limit,
            ifeval_data=self.ifeval_data,
            questions=self.questions,
            passages=self.passages,
            suites=named,
            split=self._split_of(suite),
            public=self.public_ifeval,
            blocks=blocks,
        )

    def _split_of(self, suite: str) -> Split:
        """Where no probe measures retention, the verdict has all of its items."""
        is_unprobed = suite == "retention" and not self.probe_all
        return "all" if is_unprobed and self.split == "final" else self.split


def midtrainings(project: Project, checkpoints: Sequence[Checkpoint]) -> Iterator[Run]:
    """The runs in the lineages, the last one first."""
    ancestors = [ancestor for checkpoint in checkpoints for ancestor in project.reader.lineage(checkpoint.id)]
    for ancestor in sorted(ancestors, key=lambda checkpoint: -checkpoint.id):
        run = project.reader.run(ancestor.run_id) if ancestor.role == "midtrained" and ancestor.run_id else None
        if run is not None:
            yield run


def lineage_questions(project: Project, checkpoints: Sequence[Checkpoint]) -> Path | None:
    """The stored copy of those of the last mid-training in the checkpoints' lineages; None if it had none, or the copy
    is gone."""
    last = next(midtrainings(project, checkpoints), None)
    file = relocate(project.home, Path(last.inputs.questions or "")) if last else None
    return file if file and file.is_file() else None
