"""The tables of the record; `docs/contracts.md` describes the columns."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.column_types import AnyText, Number, PlainJson, UtcTime, now

CYCLE_STATUSES = ("open", "promoted", "rejected")
RUN_KINDS = ("midtrain", "distill", "eval")
RUN_STATUSES = ("running", "done", "failed", "interrupted")
ROLES = ("base", "midtrained", "recovered", "external")
CHECKPOINT_KINDS = ("full", "adapter")
DECISIONS = ("promoted", "rejected")


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


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value) for value in values)})", name=column)


class Project(Table):
    """A project is identified by its name; its folder may move."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    root: Mapped[str]
    base: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)


class Corpus(Table):
    """The documents of a folder at one time: the same folder with other content is another corpus."""

    __tablename__ = "corpora"
    __table_args__ = (UniqueConstraint("path", "hash"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    hash: Mapped[str]
    files: Mapped[int]
    tokens: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Document(Table):
    """One document of a corpus, in order; the text is stored on disk under its hash."""

    __tablename__ = "documents"

    corpus_id: Mapped[int] = mapped_column(ForeignKey("corpora.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    hash: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)


class Cycle(Table):
    __tablename__ = "cycles"
    __table_args__ = (UniqueConstraint("project_id", "number"), _one_of("status", CYCLE_STATUSES))

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(String(16), default="open")
    corpus_id: Mapped[int | None] = mapped_column(ForeignKey("corpora.id"))
    opened_at: Mapped[datetime] = mapped_column(default=now)
    closed_at: Mapped[datetime | None]


class Run(Table):
    __tablename__ = "runs"
    __table_args__ = (_one_of("kind", RUN_KINDS), _one_of("status", RUN_STATUSES))

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16), default="running")
    settings: Mapped[dict[str, Any]]
    inputs: Mapped[dict[str, Any] | None]  # db.run_inputs.RunInputs
    seed: Mapped[int] = mapped_column(BigInteger)
    host: Mapped[str]
    pid: Mapped[int]
    code_version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(default=now)
    heartbeat_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]
    error: Mapped[str | None]
    steps: Mapped[int | None]
    cancel_requested_at: Mapped[datetime | None]


class Checkpoint(Table):
    """Weights on disk. Role `external`: models not trained here, such as a fine-tune to repair."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        _one_of("role", ROLES),
        _one_of("kind", CHECKPOINT_KINDS),
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


class Resource(Table):
    """A run's use of memory, processor and GPU memory at one time."""

    __tablename__ = "resources"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    values: Mapped[dict[str, Any]]


class Event(Table):
    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), index=True)
    at: Mapped[datetime]
    level: Mapped[str] = mapped_column(String(16))
    message: Mapped[str]


class Promotion(Table):
    """A decision about a checkpoint. The project's last `promoted` checkpoint is `current`."""

    __tablename__ = "promotions"
    __table_args__ = (_one_of("decision", DECISIONS),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"), index=True)
    cycle_id: Mapped[int | None] = mapped_column(ForeignKey("cycles.id"))
    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    decision: Mapped[str] = mapped_column(String(16))
    who: Mapped[str]
    why: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)


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
    results: Mapped[dict[str, Any] | None]
    started_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]
