"""The write side of the record: `Tracker` has every call that stores something.

Structure (projects, cycles, runs, checkpoints, evaluations, promotions) is written at once, in one transaction per
call, and raises `RecordError` on failure: without it, weights on disk would have no entry. Telemetry (steps, rollouts)
goes through a `BackgroundWriter` and never interrupts training.
"""

import os
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

from sqlalchemy import Engine, delete, exists, func, select
from sqlalchemy import Table as CoreTable
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db import RecordError, tables
from db.background_writer import BackgroundWriter, Entry
from db.column_types import database_time, now
from db.engine import insert_into, reason, write_engine
from db.tables import CheckpointKind, Decision, Role, RunInputs, RunKind

Row = TypeVar("Row", bound=tables.Table)

RunEnd = Literal["done", "failed", "interrupted"]


class CycleKey(NamedTuple):
    id: int
    number: int  # counted within the project from 1, as in `cycle:3`


class Tracker:
    """Write to the record. Close it, or use it as a context manager, so that queued telemetry is written."""

    def __init__(self, engine: Engine, pause: float = 0.5, heartbeat: float = 10.0) -> None:
        self._engine = write_engine(engine)
        self._background = BackgroundWriter(engine, pause, heartbeat)

    # Structure

    def project(self, name: str, root: str | Path, base: str) -> int:
        """The project of this name, created on first use. Its base never changes, its folder may."""
        with self._transaction(f"project {name!r}") as session:
            project = self._get_or_create(session, tables.Project, {"name": name}, {"root": str(root), "base": base})
            project.root = str(root)
            return project.id

    def corpus(self, path: str | Path, hash: str) -> int:
        """The id of the corpus with this path and hash, created on first use."""
        with self._transaction(f"the documents in {path}") as session:
            return self._get_or_create(session, tables.Corpus, {"path": str(path), "hash": hash}, {}).id

    def documents(self, corpus: int, documents: Iterable[Mapping[str, Any]]) -> None:
        """Store a corpus's documents in order (`name`, `hash`, `bytes`); later calls change nothing."""
        rows = [
            {"corpus_id": corpus, "position": position, "name": document["name"], "hash": document["hash"],
             "bytes": document["bytes"]}
            for position, document in enumerate(documents)
        ]  # fmt: skip
        with self._transaction(f"the documents of corpus {corpus}") as session:
            if rows:
                session.execute(insert_into(self._engine, tables.Document).on_conflict_do_nothing(), rows)

    def open_cycle(self, project: int, corpus: int | None = None) -> CycleKey:
        with self._transaction("a new cycle") as session:
            _lock_project(session, project)
            last = session.scalar(select(func.max(tables.Cycle.number)).filter_by(project_id=project)) or 0
            cycle = _add(session, tables.Cycle(project_id=project, number=last + 1, corpus_id=corpus))
            return CycleKey(cycle.id, cycle.number)

    def delete_empty_cycles(self, project: int) -> None:
        """Delete the cycles in which nothing has been done."""
        with self._transaction("the end of empty cycles") as session:
            _lock_project(session, project)
            empty = select(tables.Cycle).filter_by(project_id=project)
            for table in (tables.Run, tables.Checkpoint, tables.Promotion, tables.Note):
                empty = empty.where(~exists().where(table.cycle_id == tables.Cycle.id))
            for cycle in session.scalars(empty).all():
                session.delete(cycle)

    def start_run(
        self, project: int, kind: RunKind, cycle: int | None = None, settings: Mapping[str, Any] | None = None,
        seed: int = 0, steps: int | None = None, inputs: RunInputs = RunInputs(),  # noqa: B008
    ) -> int:  # fmt: skip
        """Record a new run. `steps` is the number planned, if known."""
        with self._transaction(f"a {kind} run") as session:
            row = tables.Run(
                project_id=project, cycle_id=cycle, kind=kind, settings=dict(settings or {}), seed=seed,
                inputs=inputs, steps=steps, host=socket.gethostname(), pid=os.getpid(),
                code_version=code_version(), heartbeat_at=database_time(),
            )  # fmt: skip
            run = _add(session, row).id
        self._background.start_heartbeat(run)
        return run

    def resume_run(self, run: int) -> None:
        """Continue a run in this process; steps that it repeats replace the stored ones."""
        with self._transaction(f"the resumption of run {run}") as session:
            row = _get(session, tables.Run, run)
            row.status, row.error, row.finished_at, row.cancel_requested_at = "running", None, None, None
            row.host, row.pid, row.heartbeat_at = socket.gethostname(), os.getpid(), database_time()
        self._background.start_heartbeat(run)

    def discard_steps(self, run: int, first: int) -> None:
        """Delete what is stored of a run's steps from this one on: it repeats them."""
        with self._transaction(f"the repeated steps of run {run}") as session:
            for table in (tables.Point, tables.Rollout):
                session.execute(delete(table).where(table.run_id == run, table.step >= first))

    def request_cancel(self, run: int) -> None:
        """Request that a run stops; it checks for the request between two steps."""
        with self._transaction(f"the request to stop run {run}") as session:
            row = _get(session, tables.Run, run)
            if row.status != "running":
                raise RecordError(
                    f"Run {run} is {row.status} already and cannot be stopped. List the runs with `recover runs`."
                )
            row.cancel_requested_at = row.cancel_requested_at or now()

    def finish_run(self, run: int, status: RunEnd, error: str | None = None) -> None:
        self._background.stop_heartbeat(run)
        self.flush()  # a finished run has all its telemetry stored
        with self._transaction(f"the end of run {run}") as session:
            row = _get(session, tables.Run, run)
            row.status, row.error, row.finished_at = status, error, now()

    def stopped_early(self, run: int, why: str) -> None:
        """Store why a training ended before its last step."""
        with self._transaction(f"the early end of run {run}") as session:
            _get(session, tables.Run, run).stopped = why

    def checkpoint(
        self, project: int, role: Role, path: str | Path, kind: CheckpointKind = "full", *,
        parent: int | None = None, run: int | None = None, cycle: int | None = None, hash: str | None = None,
        bytes: int | None = None, step: int | None = None,
    ) -> int:  # fmt: skip
        """Store an entry for weights that are on disk; `base` and `external` models get one entry per path."""
        with self._transaction(f"the checkpoint in {path}") as session:
            _lock_project(session, project)
            if role in ("base", "external"):
                same_path = select(tables.Checkpoint.id).filter_by(project_id=project, role=role, path=str(path))
                if (existing := session.scalar(same_path)) is not None:
                    return existing
            checkpoint = tables.Checkpoint(
                project_id=project, role=role, kind=kind, parent_id=parent, run_id=run, cycle_id=cycle,
                path=str(path), hash=hash, bytes=bytes, step=step,
            )  # fmt: skip
            return _add(session, checkpoint).id

    def evaluation(self, checkpoint: int, run: int | None, result: Mapping[str, Any]) -> int:
        """Store one evaluation, in the shape that docs/contracts.md gives, with its `items` if any."""
        return self.evaluations(checkpoint, run, [result])[0]

    def evaluations(self, checkpoint: int, run: int | None, results: Iterable[Mapping[str, Any]]) -> list[int]:
        """Store all results of one measurement, in one transaction."""
        with self._transaction(f"an evaluation of checkpoint {checkpoint}") as session:
            return [_add_evaluation(session, checkpoint, run, result) for result in results]

    def promote(
        self, project: int, cycle: int | None, checkpoint: int, decision: Decision, who: str, why: str,
        verdict: Mapping[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Store a decision about a checkpoint, and the gate's verdict on it if that is new.

        `promoted` makes it `current`; the cycle, if any, is closed."""
        with self._transaction(f"the decision about checkpoint {checkpoint}") as session:
            _lock_project(session, project)
            if cycle is not None:
                row = _get(session, tables.Cycle, cycle)
                row.status, row.closed_at = decision, row.closed_at or now()
            if verdict is not None:
                _get(session, tables.Checkpoint, checkpoint).verdict = dict(verdict)
            promotion = tables.Promotion(
                project_id=project, cycle_id=cycle, checkpoint_id=checkpoint, decision=decision, who=who, why=why
            )
            return _add(session, promotion).id

    def reopen_cycle(self, cycle: int) -> None:
        """Open a decided cycle again for the decision about another attempt; earlier decisions stay stored."""
        with self._transaction(f"the new attempt of cycle {cycle}") as session:
            row = _get(session, tables.Cycle, cycle)
            row.status, row.closed_at = "open", None

    def weights_deleted(self, checkpoint: int) -> None:
        """Store that the weights of a checkpoint were deleted; its scores stay."""
        with self._transaction(f"the deletion of checkpoint {checkpoint}") as session:
            _get(session, tables.Checkpoint, checkpoint).deleted_at = now()

    def give_up(self, run: int) -> None:
        """Mark a run as failed, so that it is not resumed; its end time and its error are kept."""
        with self._transaction(f"giving up run {run}") as session:
            row = _get(session, tables.Run, run)
            row.status, row.finished_at = "failed", row.finished_at or row.heartbeat_at
            row.error = tables.GIVEN_UP + (f" ({row.error})" if row.error else "")

    def note(
        self, project: int, text: str, who: str, *, cycle: int | None = None, checkpoint: int | None = None
    ) -> int:
        """Store a person's note on a cycle (by its id) or on a checkpoint, in Markdown."""
        if (cycle is None) == (checkpoint is None):
            raise RecordError("A note is about a cycle or about a checkpoint. Name one of them.")
        if not text.strip():
            raise RecordError("A note needs some text. Write a sentence or more.")
        with self._transaction("a note") as session:
            row = tables.Note(project_id=project, cycle_id=cycle, checkpoint_id=checkpoint, text=text, who=who)
            return _add(session, row).id

    def study(self, project: int, name: str, size: str, hash: str, declaration: Mapping[str, Any]) -> int:
        """The id of the study with this declaration, stored on first use: before anything runs."""
        with self._transaction(f"the study {name}") as session:
            key = {"project_id": project, "name": name, "size": size, "hash": hash}
            others = {"declaration": dict(declaration), "started_at": now(), "updated_at": now()}
            return self._get_or_create(session, tables.Study, key, others).id

    def store_study(self, study: int, results: Mapping[str, Any], *, done: bool) -> None:
        """Store how the arms did, and with `done` the verdicts."""
        with self._transaction(f"the results of study {study}") as session:
            row = _get(session, tables.Study, study)
            row.results, row.updated_at = dict(results), now()
            row.finished_at = (row.finished_at or now()) if done else None

    # Telemetry

    def step(self, run: int, step: int, metrics: Mapping[str, float | None]) -> None:
        """Queue the metrics of one step, all in one call; None values are left out."""
        rows = [
            {"run_id": run, "step": step, "name": name, "value": float(value)}
            for name, value in metrics.items()
            if value is not None
        ]
        self._enqueue(run, tables.Point, rows)

    def rollouts(self, run: int, step: int, rollouts: Sequence[Mapping[str, Any]]) -> None:
        """Queue all rollouts of a step: `prompt`, `text`; optionally `truncated`, `reward`, `tokens`.

        `tokens` has one entry per token: its text, the divergence from the teacher there, and the likeliest choices of
        the student and of the teacher: `["Paris", 0.3, [["Paris", 0.6], …], [["Rome", 0.5], …]]`.
        """
        rows = [
            {"run_id": run, "step": step, "position": position, "prompt": rollout["prompt"], "text": rollout["text"],
             "truncated": bool(rollout.get("truncated", False)), "reward": rollout.get("reward"),
             "tokens": rollout.get("tokens")}
            for position, rollout in enumerate(rollouts)
        ]  # fmt: skip
        self._enqueue(run, tables.Rollout, rows)

    def flush(self) -> bool:
        """Write all queued telemetry now; False when the database is unavailable (it stays queued)."""
        return self._background.flush()

    def close(self) -> None:
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enqueue(self, run: int, table: type[tables.Table], rows: list[dict[str, Any]]) -> None:
        if rows:
            self._background.put(Entry(run, cast(CoreTable, table.__table__), rows))

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Session]:
        try:
            with Session(self._engine) as session, session.begin():
                yield session
        except SQLAlchemyError as error:
            raise RecordError(
                f"The record could not store {what}: {reason(error)}. Check the database, and try again."
            ) from error

    def _get_or_create(self, session: Session, table: type[Row], key: dict[str, Any], others: dict[str, Any]) -> Row:
        """Get or insert a row in one statement, as two processes may do so at the same time."""
        insert = insert_into(self._engine, table).values(**key, **others)
        session.execute(insert.on_conflict_do_nothing(index_elements=list(key)))
        return session.scalars(select(table).filter_by(**key)).one()


def code_version() -> str:
    """The release, stored with every run; in a git checkout followed by the commit (`0.1.0+g1a2b3c4`)."""
    try:
        release = version("recover")
    except PackageNotFoundError:
        release = "unknown"
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return release
    describe = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return release
    return f"{release}+g{commit}"


def _lock_project(session: Session, project: int) -> None:
    """Allow one writer at a time in a project, so that what it reads stays true until it writes (PostgreSQL)."""
    if session.scalar(select(tables.Project.id).filter_by(id=project).with_for_update()) is None:
        raise RecordError(f"The record has no project {project}. Check its number, or the address of the database.")


def _get(session: Session, table: type[Row], id: int) -> Row:
    row = session.get(table, id)
    if row is None:
        raise RecordError(f"The record has no {table.__name__.lower()} {id}. Check its number with `recover status`.")
    return row


def _add(session: Session, row: Row) -> Row:
    session.add(row)
    session.flush()
    return row


def _add_evaluation(session: Session, checkpoint: int, run: int | None, result: Mapping[str, Any]) -> int:
    try:
        row = tables.Evaluation(
            checkpoint_id=checkpoint, run_id=run, suite=result["suite"], task=result["task"], data=result["data"],
            settings=dict(result.get("settings") or {}), seconds=result["seconds"],
        )  # fmt: skip
        evaluation = _add(session, row).id
        for position, (name, metric) in enumerate(result["metrics"].items()):
            low, high = metric.get("ci95") or (None, None)
            session.add(tables.Score(
                evaluation_id=evaluation, metric=name, value=metric["value"], n=metric["n"],
                stderr=metric.get("stderr"), low=low, high=high, position=position,
            ))  # fmt: skip
        for position, item in enumerate(result.get("items") or ()):
            session.add(tables.Item(
                evaluation_id=evaluation, position=position, key=str(item["key"]), prompt=item["prompt"],
                answer=item["answer"], passed=item.get("passed"), verdicts=item.get("verdicts"),
            ))  # fmt: skip
    except KeyError as error:
        raise RecordError(
            f"The result of an evaluation lacks {error}. Add it, as docs/contracts.md describes."
        ) from error
    return evaluation
