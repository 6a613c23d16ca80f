"""A job: what one training command was asked to do, saved with copies of its inputs before anything is computed.

`recover resume` needs nothing else, whatever becomes of the user's files. A job never changes; what of it is done
already is known from the record, where every run names its job and its stage."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from db.tables import Run
from pipelines.documents.corpus import CorpusSnapshot, snapshot_file
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.project.locations import relocate
from pipelines.project.lock import job_files, readable_job
from pipelines.project.project import Project
from pipelines.project.runs import JobKey
from pipelines.settings.schema import Settings
from pipelines.storage import HASH_DIGITS, JsonLines, write_atomic
from pipelines.synthetic.prompts import read_prompts
from pipelines.teacher_choice import BASE, TeacherChoice, named_checkpoints
from recovery.errors import RecoverError

Command = Literal["midtrain", "distill", "cycle", "repair"]
FILES = ("training_file", "conversations", "prompts", "teacher_context")  # fields that are files of the project


@dataclass(frozen=True)
class Job:
    command: Command
    settings: Settings
    eval_plan: EvalPlan = EvalPlan()  # noqa: RUF009
    seed: int = 0
    corpus: CorpusSnapshot | None = None
    training_file: Path | None = None  # a copy of the conversations that are learned, or were learned elsewhere
    start: int | None = None  # the checkpoint that is mid-trained; of a repair one that the project trained
    student: int | None = None  # the checkpoint that is repaired, where the job does not mid-train one
    weights: dict[int, str] = field(default_factory=dict)  # what identifies the student and models from outside
    current: int | None = None  # the checkpoint that was current when it was saved
    teacher: TeacherChoice[int] = BASE
    prompts: Path | None = None
    conversations: Path | None = None  # where a person has those that are mid-trained on
    teacher_context: Path | None = None  # what only the teacher reads
    given: dict[str, Any] = field(default_factory=dict)  # the settings that a person gave, by their dotted names
    model: str | None = None  # the student as the command of a repair named it
    notes: tuple[str, ...] = ()  # on the files of that model
    fixed: str | None = None  # what was wrong with the student's files, and is right in the copy that is repaired
    processes: int = 1  # that `--processes` started, and which continue it
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def key(self) -> JobKey:
        return JobKey(self.id, self.command, self.current)

    @property
    def checkpoints(self) -> set[int]:
        named = (self.start, self.student, *named_checkpoints(self.teacher))
        return {id for id in named if id is not None}

    @property
    def content(self) -> str:
        """The hash of what it mid-trains on: the documents, or else the conversations."""
        if self.corpus:
            return self.corpus.hash
        assert self.training_file is not None
        return self.training_file.name.partition(".")[0]

    def save(self, home: Path) -> Self:
        write_atomic(self._file(home), [json.dumps(self.as_json(), indent=1)])
        return self

    def delete(self, home: Path, runs: Iterable[Run] = ()) -> None:
        """With what it stored of its documents, where they are not to be kept, and neither a run of a job that keeps
        them nor another unfinished job has read them."""
        if not self.settings.keep_documents:
            others = [file.read_text(encoding="utf-8") for file in job_files(home) if file != self._file(home)]
            kept = [run.inputs for run in runs if run.settings.get("keep_documents")]
            others += [f"{inputs.corpus} {inputs.conversations}" for inputs in kept]
            stored = {self.training_file.name: [self.training_file]} if self.training_file else {}
            if self.corpus:
                of_documents = (home / "cache").glob(f"*-{self.corpus.hash[:HASH_DIGITS]}-*")
                stored[self.corpus.hash] = [snapshot_file(home, self.corpus.hash), *of_documents]
            for name, files in stored.items():
                if not any(name in other for other in others):
                    for file in files:
                        file.unlink(missing_ok=True)
        self._file(home).unlink(missing_ok=True)

    def _file(self, home: Path) -> Path:
        return home / "jobs" / f"{self.id}.json"

    def as_json(self) -> dict[str, Any]:
        json_values: dict[str, Any] = JOB.dump_python(self, mode="json")
        return json_values | {"eval_plan": self.eval_plan.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], home: Path) -> "Job":
        """Files of the project are located in `home`, wherever its folder lies now."""
        if other := values.keys() ^ {field.name for field in fields(Job)}:
            raise RecoverError(f"unknown or missing: {', '.join(sorted(other))}")
        try:
            job = JOB.validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise RecoverError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        corpus = job.corpus and replace(job.corpus, file=snapshot_file(home, job.corpus.hash))
        files: dict[str, Any] = {name: relocate(home, file) for name in FILES if (file := getattr(job, name))}
        return replace(job, corpus=corpus, eval_plan=job.eval_plan.relocated(home), **files)


JOB = TypeAdapter(Job)


def unfinished_jobs(home: Path) -> list[Job]:
    """The oldest first."""
    jobs = []
    for file in job_files(home):
        with readable_job(file):
            jobs.append(Job.from_json(json.loads(file.read_text(encoding="utf-8")), home))
    return jobs


def store_file(project: Project, file: Path | None, kind: Literal["questions", "contexts", "ifeval"]) -> Path | None:
    """A copy named by its content: later cycles are measured by questions, whatever becomes of the user's file."""
    if file is None:
        return None
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    copy = project.home / kind / content / file.name
    if copy != file.resolve():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return copy


def store_prompts(project: Project, file: Path | None) -> Path | None:
    if file is None:
        return None
    prompts = [prompt.row[1] for prompt in read_prompts(file)]
    content = "\n".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)  # names the file
    copy = project.cache.path("prompts", content, ".jsonl")
    JsonLines(copy).write(prompts)
    return copy
