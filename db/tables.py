"""The tables of the record; `docs/contracts.md` describes the columns.

`Reader` returns their rows, independent of the database connection. It also sets the attributes that are no columns.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, MetaData, String, UniqueConstraint, inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db import name_of_base
from db.column_types import AnyText, Number, PlainJson, UtcTime, now
from db.verdicts import gate_outcome, outcome_of, overrules_gate

CycleStatus = Literal["open", "promoted", "rejected"]
RunKind = Literal["midtrain", "distill", "eval"]
RunStatus = Literal["running", "done", "failed", "interrupted"]
Role = Literal["base", "midtrained", "recovered", "external"]
CheckpointKind = Literal["full", "adapter"]
Decision = Literal["promoted", "rejected"]

GIVEN_UP = "given up by recover cancel"
COLLAPSED = "it collapsed"  # how the reason begins for which such a training ended
WATCHED = "watched"  # the stage of a training with a ForgettingCallback
DONE, TOTAL = "progress/done", "progress/total"  # points of a measurement: items of the task that is measured now


class Table(DeclarativeBase):
    # Constraint names follow from the columns, so that a migration can find them again.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: AnyText, datetime: UtcTime, float: Number, dict[str, Any]: PlainJson}  # noqa: RUF012
    __allow_unmapped__ = True  # for attributes that are no columns

    def replaced(self, **changes: Any) -> Self:
        """A copy with other values, as of `dataclasses.replace`."""
        values = {name: value for name, value in vars(self).items() if name != "_sa_instance_state"}
        return type(self)(**{**values, **changes})

    def _key(self) -> tuple[object, ...]:
        return type(self), *inspect(type(self)).primary_key_from_instance(self)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same row of the record, whenever they were read."""
        return isinstance(other, Table) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _one_of(column: str, values: Any) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(map(repr, get_args(values)))})", name=column)


class Project(Table):
    """A project is identified by its name; its folder may move."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    root: Mapped[str]
    base: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)

    @property
    def base_name(self) -> str:
        """The base as people know it: the GGUF file that it was made from, the last names of a folder, or a hub id."""
        name = name_of_base(self.base)
        return "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name


class Corpus(Table):
    """The documents of a folder at one time: the same folder with other content is another corpus."""

    __tablename__ = "corpora"
    __table_args__ = (UniqueConstraint("path", "hash"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    hash: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)


class Document(Table):
    """One document of a corpus, in order; the text is stored on disk under its hash."""

    __tablename__ = "documents"

    corpus_id: Mapped[int] = mapped_column(ForeignKey("corpora.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    hash: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)


@dataclass(frozen=True)
class RunInputs:
    """What a run was given besides its settings, as JSON in `runs.inputs`; a field that does not apply is None."""

    job: str | None = None  # the job that started the run; `recover resume` finds it by this
    stage: str | None = None  # of that job: midtrained, recovered, or what is measured
    given: dict[str, Any] | None = None  # the settings that a person gave, by their dotted names
    corpus: str | None = None  # content hash of the documents, or else of the conversations
    conversations: str | None = None  # file of the conversations that were learned
    questions: str | None = None  # file of closed-book questions
    passages: str | None = None  # file of sampled passages or held-out conversations, where there are no questions
    prompts: str | None = None  # content hash of the prompts of a distillation
    teacher: str | None = None  # as shown to people
    lift: dict[str, Any] | None = None  # what its context gives the teacher: accuracy with and without it, or the KL
    separator: int | None = None  # the token that ends each document
    mix: dict[str, float] | None = None  # the shares in effect: answers, texts, earlier
    passages_taught: dict[str, Any] | None = None  # in context: passages, questions and openings among the prompts

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class RunInputsJson(PlainJson):
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return super().process_bind_param(value.as_json(), dialect)

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> RunInputs:
        return RunInputs(**(value or {}))


class Run(Table):
    __tablename__ = "runs"
    __table_args__ = (_one_of("kind", RunKind), _one_of("status", RunStatus))

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16), default="running")
    settings: Mapped[dict[str, Any]]
    inputs: Mapped[RunInputs] = mapped_column(RunInputsJson, nullable=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    host: Mapped[str]
    pid: Mapped[int]
    code_version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(default=now)
    heartbeat_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]
    error: Mapped[str | None]
    steps: Mapped[int | None]  # how many are planned, if known
    stopped: Mapped[str | None]  # why a training ended before its last step
    cancel_requested_at: Mapped[datetime | None]

    cycle: int | None = None  # the cycle's number in its project
    stale: bool = False  # marked as running, but without a heartbeat: its process is gone

    @property
    def resumable(self) -> bool:
        """Whether `recover resume` can continue it, if it is not running."""
        return self.status != "done" and not (self.error or "").startswith(GIVEN_UP)


class Checkpoint(Table):
    """Weights on disk. Role `external`: models not trained here, such as a fine-tune to repair."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        _one_of("role", Role),
        _one_of("kind", CheckpointKind),
        Index(None, "project_id", "role"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"), index=True)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"), index=True)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("checkpoints.id"))
    role: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(16))
    path: Mapped[str]
    hash: Mapped[str | None]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    step: Mapped[int | None]
    verdict: Mapped[dict[str, Any] | None]  # of the gate
    created_at: Mapped[datetime] = mapped_column(default=now)
    deleted_at: Mapped[datetime | None]  # when its weights were deleted

    cycle: int | None = None  # the cycle's number in its project
    superseded: bool = False  # `cycle:N` names another attempt of its cycle

    @property
    def reference(self) -> str:
        """How to name it on the command line."""
        if self.role in ("midtrained", "recovered"):
            of_run = self.cycle is None or (self.superseded and self.run_id is not None)
            return f"run:{self.run_id}" if of_run else f"cycle:{self.cycle}/{self.role}"
        return "base" if self.role == "base" else self.path


class Evaluation(Table):
    __tablename__ = "evaluations"

    id: Mapped[int] = mapped_column(primary_key=True)
    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"), index=True)
    suite: Mapped[str]
    task: Mapped[str]
    data: Mapped[str]
    settings: Mapped[dict[str, Any]]
    seconds: Mapped[float]
    at: Mapped[datetime] = mapped_column(default=now)

    scores: "dict[str, Score]"  # by metric
    cycle: int | None  # the number of the cycle it was measured in

    @property
    def content(self) -> str | None:
        """The hash of the file that its items are from; None for built-in and public ones."""
        return self.settings.get("content")


class Score(Table):
    """A metric of an evaluation, in the task's order: the first is the headline of a task without a headline metric."""

    __tablename__ = "scores"

    evaluation_id: Mapped[int] = mapped_column(ForeignKey("evaluations.id"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    n: Mapped[int]
    stderr: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    position: Mapped[int]


@dataclass(frozen=True)
class Headline:
    """The score that stands for a suite, with its task."""

    value: float | None
    n: int
    low: float | None
    high: float | None
    task: str
    evaluation: int  # of several that are pooled, the first
    data: str
    content: str | None  # as of the evaluation
    items: tuple[Any, ...]  # of each task: where all of it agrees, the scores are of the same items

    @property
    def is_of_one_task(self) -> bool:
        return ", " not in self.task


@dataclass(frozen=True)
class Stage:
    """A checkpoint and its headline scores by suite; suites that were not measured are missing."""

    checkpoint: Checkpoint | None = None
    scores: dict[str, Headline] = field(default_factory=dict)

    @property
    def checkpoint_id(self) -> int | None:
        return self.checkpoint.id if self.checkpoint else None


class Cycle(Table):
    __tablename__ = "cycles"
    __table_args__ = (UniqueConstraint("project_id", "number"), _one_of("status", CycleStatus))

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(String(16), default="open")
    corpus_id: Mapped[int | None] = mapped_column(ForeignKey("corpora.id"))
    opened_at: Mapped[datetime] = mapped_column(default=now)
    closed_at: Mapped[datetime | None]

    documents: str | None = None  # the folder of its corpus
    verdict: dict[str, Any] | None = None  # of the gate
    clean: Stage = Stage()
    damaged: Stage = Stage()
    recovered: Stage = Stage()
    decision_reason: str | None = None  # of the last decision
    student: Checkpoint | None = None  # what the recovered checkpoint was distilled from
    is_discarded: bool = False  # its run was discarded before there was any checkpoint

    @property
    def last_measured(self) -> Stage:
        return self.recovered if self.recovered.scores else self.damaged

    @property
    def outcome(self) -> str:
        return "discarded" if self.is_discarded else outcome_of(self.status, self.decision_reason, self.verdict)


class Item(Table):
    """One prompt of an evaluation and the answer, in order; keys come from the task and may repeat."""

    __tablename__ = "items"

    evaluation_id: Mapped[int] = mapped_column(ForeignKey("evaluations.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]
    prompt: Mapped[str]
    answer: Mapped[str]
    passed: Mapped[bool | None]
    verdicts: Mapped[Any] = mapped_column(PlainJson, nullable=True)


class Point(Table):
    """One metric of a step, NULL for NaN. A step repeated after a resume overwrites its rows."""

    __tablename__ = "points"
    # The key is most of the row, so on SQLite the table is its own index: half the size, and a run is read in order.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]


class Rollout(Table):
    """A text the student wrote at a step, in order; a repeated step overwrites its rows."""

    __tablename__ = "rollouts"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    prompt: Mapped[str]
    text: Mapped[str]
    truncated: Mapped[bool]
    reward: Mapped[float | None]
    tokens: Mapped[Any] = mapped_column(PlainJson, nullable=True)


class Promotion(Table):
    """A decision about a checkpoint. The project's last `promoted` checkpoint is `current`."""

    __tablename__ = "promotions"
    __table_args__ = (_one_of("decision", Decision),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"))
    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    decision: Mapped[str] = mapped_column(String(16))
    who: Mapped[str]
    why: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)

    cycle: int | None = None  # the cycle's number in its project
    verdict: dict[str, Any] | None = None  # of the gate on the checkpoint

    @property
    def outcome(self) -> str:
        return outcome_of(self.decision, self.why, self.verdict)

    @property
    def against_gate(self) -> str:
        """What the decision was for people, where it overruled the gate."""
        return f"{self.decision} against the gate's verdict ({gate_outcome(self.verdict)})"


def promotion_against_gate(newest_first: Iterable[Promotion], checkpoint: int) -> Promotion | None:
    """The promotion that put a checkpoint into use against the gate, if one did.

    It is the first since the last rejection: a rollback to the checkpoint promotes it once more."""
    first = None
    for promotion in newest_first:
        if promotion.checkpoint_id == checkpoint and promotion.decision == "rejected":
            break
        first = promotion if promotion.checkpoint_id == checkpoint else first
    return first if first and overrules_gate(first.decision, first.verdict) else None


def last_decisions(newest_first: Iterable[Promotion]) -> dict[int, str]:
    """The last decision on each checkpoint, by the checkpoint's id."""
    decisions: dict[int, str] = {}
    for promotion in newest_first:
        decisions.setdefault(promotion.checkpoint_id, promotion.decision)
    return decisions


class Note(Table):
    """A person's note on a cycle or on a checkpoint, in Markdown."""

    __tablename__ = "notes"
    __table_args__ = (
        CheckConstraint("(cycle_id IS NULL) <> (checkpoint_id IS NULL)", name="about"),
        Index(None, "project_id", "cycle_id", "checkpoint_id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"))
    checkpoint_id: Mapped[int | None] = mapped_column(ForeignKey("checkpoints.id"))
    text: Mapped[str]
    who: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)

    cycle: int | None = None  # the cycle's number in its project


class Study(Table):
    """A declared experiment: what it claims, how its arms did, and the verdicts."""

    __tablename__ = "studies"
    __table_args__ = (UniqueConstraint("project_id", "name", "size", "hash"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    size: Mapped[str]
    hash: Mapped[str]  # of the declaration, stored before anything ran
    declaration: Mapped[dict[str, Any]]
    results: Mapped[dict[str, Any] | None]  # arms, planned, claims
    started_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]  # when it had its verdicts

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims with their verdicts; without them while arms are missing."""
        return (self.results or {}).get("claims") or list(self.declaration["claims"])

    @property
    def arms(self) -> dict[str, list[dict[str, Any]]]:
        """What each arm came to on the seeds that are done."""
        by_arm: dict[str, list[dict[str, Any]]] = {}
        for entry in (self.results or {}).get("arms", []):
            by_arm.setdefault(entry["arm"], []).append(entry)
        return by_arm
