"""A job: what one training command was asked to do, saved with copies of its inputs before anything is computed.

`recover resume` needs nothing else, whatever becomes of the user's files. A job never changes; what of it is done
already is known from the record, where every run names its job and its stage."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pipelines.documents.snapshot import CorpusSnapshot, snapshot_file
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.jobs.job_files import delete_job, job_files, read_job_file, unreadable, write_job
from pipelines.jobs.teacher_choice import BASE, OF_JOB, TeacherChoice, named_checkpoints
from pipelines.project.locations import relocate
from pipelines.project.project import Project
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from pipelines.storage import ContentCache, JsonLines, write_atomic
from pipelines.synthetic.prompts import read_prompts
from recovery.errors import RecoverError

Command = Literal["midtrain", "distill", "cycle", "repair"]


@dataclass(frozen=True)
class Job:
    command: Command
    settings: Settings
    eval_plan: EvalPlan = EvalPlan()  # noqa: RUF009
    seed: int = 0
    corpus: CorpusSnapshot | None = None
    training_file: Path | None = None  # conversations that the student was trained on elsewhere
    start: int | None = None  # the checkpoint that is mid-trained
    student: int | None = None  # the checkpoint that is repaired, where the job does not mid-train one
    teacher: TeacherChoice[int] = BASE
    prompts: Path | None = None
    teacher_context: Path | None = None  # what only the teacher reads
    given: tuple[str, ...] = ()  # names of settings of distillation that the moves of a repair keep
    ask: bool = False  # whether a person decides about the promotion
    processes: int = 1  # that `--processes` started, and which continue it
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def checkpoints(self) -> set[int]:
        """Ids of the checkpoints that it uses."""
        named = (self.start, self.student, *named_checkpoints(self.teacher))
        return {id for id in named if id is not None}

    def save(self, home: Path) -> Self:
        write_job(home, self.id, self.as_json())
        return self

    def delete(self, home: Path) -> None:
        delete_job(home, self.id)

    def as_json(self) -> dict[str, Any]:
        corpus = self.corpus
        return {
            "id": self.id,
            "command": self.command,
            "settings": self.settings.model_dump(),
            "eval_plan": self.eval_plan.to_json(),
            "seed": self.seed,
            "corpus": corpus and {"hash": corpus.hash, "path": str(corpus.path), "files": corpus.files},
            **({"training_file": str(self.training_file)} if self.training_file else {}),
            "start": self.start,
            "student": self.student,
            "teacher": asdict(self.teacher),
            "prompts": str(self.prompts) if self.prompts else None,
            "teacher_context": str(self.teacher_context) if self.teacher_context else None,
            **({"given": list(self.given)} if self.given else {}),
            "ask": self.ask,
            **({"processes": self.processes} if self.processes > 1 else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], home: Path) -> Self:
        """Files of the project are located in `home`, wherever its folder lies now."""
        fields = dict(values)
        if corpus := fields["corpus"]:
            file = snapshot_file(home, corpus["hash"])
            fields["corpus"] = CorpusSnapshot(Path(corpus["path"]), corpus["hash"], corpus["files"], file)
        fields["settings"] = apply_overrides(Settings(), fields["settings"])
        fields["teacher"] = OF_JOB.validate_python(fields["teacher"])
        fields["given"] = tuple(fields.get("given", ()))
        fields["eval_plan"] = EvalPlan.from_json(fields["eval_plan"]).relocated(home)
        for name in ("training_file", "prompts", "teacher_context"):
            fields[name] = relocate(home, Path(fields[name])) if fields.get(name) else None
        return cls(**fields)


def unfinished_jobs(home: Path) -> list[Job]:
    """The oldest first."""
    return [_read(file, home) for file in job_files(home)]


def _read(file: Path, home: Path) -> Job:
    values = read_job_file(file)
    try:
        return Job.from_json(values, home)
    except (ValueError, TypeError, KeyError, RecoverError) as error:
        raise unreadable(file, error) from error


def store_questions(project: Project, file: Path | None) -> Path | None:
    """A copy named by its content: later cycles are measured by it, whatever becomes of the user's file."""
    if file is None:
        return None
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    copy = project.home / "questions" / content / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return copy


def store_prompts(project: Project, file: Path | None) -> Path | None:
    if file is None:
        return None
    prompts = [prompt.row[1] for prompt in read_prompts(file)]
    content = "\n".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)  # names the file
    copy = ContentCache(project.home / "cache").path("prompts", content, ".jsonl")
    JsonLines(copy).write(prompts)
    return copy


def store_context(project: Project, file: Path | None) -> Path | None:
    if file is None:
        return None
    content = file.read_text(encoding="utf-8-sig")
    copy = ContentCache(project.home / "cache").path("contexts", content, file.suffix.lower())
    write_atomic(copy, [content])
    return copy
