"""The read side: what the command line and the pages ask the record."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from math import nan
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, Engine, Select, String, cast, func, literal, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db import tables, views
from db.engine import reason
from db.errors import RecordError
from db.headlines import measured, stage
from db.run_inputs import RunInputs
from db.types import now

STALE_AFTER = timedelta(minutes=2)
"""A run tells every ten seconds that it lives; one that has not for so long is not going on any more."""
STEP_SECONDS = ("rollout_seconds", "teacher_seconds", "update_seconds")
"""The numbers of a step that say how long it took; together they are the whole of it."""

View = TypeVar("View")


class Reader:
    """Every call is one short transaction: nothing read here holds up a writer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def projects(self) -> list[views.Project]:
        with self._session() as session:
            rows = session.scalars(select(tables.Project).order_by(tables.Project.id))
            return [_view(views.Project, row) for row in rows]

    def project(self, name: str) -> views.Project | None:
        return next((project for project in self.projects() if project.name == name), None)

    def changes(self, project: int) -> tuple[Any, ...]:
        """A mark that stays equal until what cycles, runs, checkpoints, scores, decisions or notes say has changed.

        A run that falls silent changes it, too: nobody is left to write that down.

        A few look-ups whatever the length of the history, so a page may ask as often as it likes.
        """
        of_project = [
            select(func.max(column)).where(column.class_.project_id == project).scalar_subquery()
            for column in (
                tables.Cycle.id, tables.Cycle.closed_at, tables.Run.id, tables.Run.finished_at, tables.Checkpoint.id,
                tables.Promotion.id, tables.Note.id,
            )
        ]  # fmt: skip
        # Any verdict that is not the same is hardly ever of the same length; SQL compares no JSON.
        length = func.sum(func.length(cast(tables.Cycle.verdict, String)))
        verdicts = select(length).where(tables.Cycle.project_id == project).scalar_subquery()
        # An evaluation of another project looks like a change too; that costs one look too many, a join each look.
        scored = select(func.max(tables.Evaluation.id)).scalar_subquery()
        with self._session() as session:
            told = session.execute(select(*of_project, verdicts, scored)).one()
            silent = select(tables.Run.id).where(*_silent(project, STALE_AFTER)).order_by(tables.Run.id)
            return (*told, tuple(session.scalars(silent)))

    # Checkpoints, by the pieces that references are made of

    def checkpoint(self, id: int) -> views.Checkpoint | None:
        return self._last(_checkpoints().where(tables.Checkpoint.id == id))

    def base(self, project: int) -> views.Checkpoint | None:
        """The project's clean model: the first that was recorded as its base."""
        chosen = _checkpoints().where(tables.Checkpoint.project_id == project, tables.Checkpoint.role == "base")
        with self._session() as session:
            row = session.execute(chosen.order_by(tables.Checkpoint.id).limit(1)).first()
            return _checkpoint(row) if row else None

    def current(self, project: int) -> views.Checkpoint | None:
        """The last promoted checkpoint, `base` before any promotion, None when not even that is on record."""
        promoted = (
            select(tables.Promotion.checkpoint_id)
            .filter_by(project_id=project, decision="promoted")
            .order_by(tables.Promotion.id.desc())
            .limit(1)
        )
        chosen = _checkpoints().where(tables.Checkpoint.id == promoted.scalar_subquery())
        return self._last(chosen) or self.base(project)

    def cycle_checkpoint(
        self, project: int, cycle: int, role: Literal["midtrained", "recovered"] = "recovered"
    ) -> views.Checkpoint | None:
        """The one that was promoted of several, else the last."""
        chosen = _checkpoints().where(tables.Cycle.project_id == project, tables.Cycle.number == cycle)
        return self._last(chosen.where(tables.Checkpoint.role == role).order_by(_promoted_in_its_cycle().desc()))

    def run_checkpoint(self, run: int) -> views.Checkpoint | None:
        return self._last(_checkpoints().where(tables.Checkpoint.run_id == run))

    def latest(self, project: int, role: Literal["midtrained", "recovered"]) -> views.Checkpoint | None:
        return self._last(_checkpoints().where(tables.Checkpoint.project_id == project, tables.Checkpoint.role == role))

    def checkpoints(self, project: int) -> list[views.Checkpoint]:
        """All of a project, in the order they came to be."""
        with self._session() as session:
            return _project_checkpoints(session, project)

    def stages(self, project: int) -> list[views.Stage]:
        """All checkpoints of a project with their headline scores, in the order they came to be."""
        with self._session() as session:
            known = measured(session, project)
            return [stage(checkpoint, known, checkpoint.cycle) for checkpoint in _project_checkpoints(session, project)]

    def lineage(self, checkpoint: int) -> list[views.Checkpoint]:
        """From a checkpoint to the clean model it descends from."""
        chain = select(tables.Checkpoint.id, tables.Checkpoint.parent_id, literal(0).label("depth"))
        line = chain.where(tables.Checkpoint.id == checkpoint).cte("line", recursive=True)
        parent = select(tables.Checkpoint.id, tables.Checkpoint.parent_id, line.c.depth + 1)
        line = line.union_all(parent.where(tables.Checkpoint.id == line.c.parent_id))
        with self._session() as session:
            rows = session.execute(_checkpoints().join(line, line.c.id == tables.Checkpoint.id).order_by(line.c.depth))
            return [_checkpoint(row) for row in rows]

    # Cycles and scores

    def cycles(self, project: int) -> list[views.Cycle]:
        with self._session() as session:
            rows = session.execute(
                select(tables.Cycle, tables.Corpus.path)
                .outerjoin(tables.Corpus, tables.Cycle.corpus_id == tables.Corpus.id)
                .where(tables.Cycle.project_id == project)
                .order_by(tables.Cycle.number)
            ).all()
            known = measured(session, project)
            checkpoints = _project_checkpoints(session, project)
            kept = select(tables.Checkpoint.id, _promoted_in_its_cycle()).filter_by(project_id=project)
            promoted = {made: when for made, when in session.execute(kept)}
        base = next((checkpoint for checkpoint in checkpoints if checkpoint.role == "base"), None)
        checkpoints.sort(key=lambda made: (promoted[made.id], made.id))
        stages = {(checkpoint.cycle, checkpoint.role): checkpoint for checkpoint in checkpoints}
        return [
            _view(
                views.Cycle,
                cycle,
                documents=documents,
                clean=stage(base, known, cycle.number),
                damaged=stage(stages.get((cycle.number, "midtrained")), known, cycle.number),
                recovered=stage(stages.get((cycle.number, "recovered")), known, cycle.number),
            )
            for cycle, documents in rows
        ]

    def series(self, project: int) -> list[views.SeriesPoint]:
        """The headline scores of the project's own checkpoints, in the order these came to be."""
        with self._session() as session:
            known = measured(session, project)
            checkpoints = _project_checkpoints(session, project)
        return [
            views.SeriesPoint(
                checkpoint.created_at, checkpoint.id, checkpoint.role, checkpoint.cycle, suite, score.metric,
                score.value, score.low, score.high, score.n,
            )
            for checkpoint in checkpoints
            if checkpoint.role != "external"
            for suite, score in stage(checkpoint, known, checkpoint.cycle).scores.items()
        ]  # fmt: skip

    def evaluations(self, checkpoint: int) -> list[views.Evaluation]:
        with self._session() as session:
            of_checkpoint = tables.Evaluation.checkpoint_id == checkpoint
            scores: dict[int, dict[str, views.Score]] = defaultdict(dict)
            told = select(tables.Score).join(tables.Evaluation).where(of_checkpoint)
            for row in session.scalars(told.order_by(tables.Score.position, tables.Score.metric)):
                scores[row.evaluation_id][row.metric] = _view(views.Score, row)
            rows = session.scalars(select(tables.Evaluation).where(of_checkpoint).order_by(tables.Evaluation.id))
            return [_view(views.Evaluation, row, scores=scores[row.id]) for row in rows]

    def items(self, evaluation: int) -> list[views.Item]:
        chosen = select(tables.Item).filter_by(evaluation_id=evaluation).order_by(tables.Item.position)
        with self._session() as session:
            return [_view(views.Item, row) for row in session.scalars(chosen)]

    def passes(self, evaluation: int) -> dict[str, bool | None]:
        """Which items passed, by key: what is needed to compare two, without their texts."""
        chosen = select(tables.Item.key, tables.Item.passed).filter_by(evaluation_id=evaluation)
        with self._session() as session:
            return {key: passed for key, passed in session.execute(chosen.order_by(tables.Item.position))}

    # Runs and what they said

    def runs(self, project: int) -> list[views.Run]:
        """The newest first."""
        chosen = _runs().where(tables.Run.project_id == project).order_by(tables.Run.id.desc())
        with self._session() as session:
            return [_run(run, cycle) for run, cycle in session.execute(chosen)]

    def run(self, id: int) -> views.Run | None:
        with self._session() as session:
            row = session.execute(_runs().where(tables.Run.id == id)).first()
            return _run(*row) if row else None

    def cancel_requested(self, run: int) -> bool:
        """Whether somebody asked the run to stop."""
        with self._session() as session:
            return session.scalar(select(tables.Run.cancel_requested_at).filter_by(id=run)) is not None

    def stale_runs(self, project: int, after: timedelta = STALE_AFTER) -> list[views.Run]:
        """Runs that are said to go on and have not been heard of for that long: their process is gone."""
        with self._session() as session:
            rows = session.execute(_runs().where(*_silent(project, after)).order_by(tables.Run.id))
            return [_run(run, cycle) for run, cycle in rows]

    def worked(self, runs: Iterable[int]) -> dict[int, float]:
        """By run, the seconds that its steps and its measurements took, by their own clocks.

        The time between a run's start and its end is more: a run that was interrupted keeps its start when it goes on.
        """
        point, evaluation, chosen = tables.Point, tables.Evaluation, list(runs)
        steps = select(point.run_id, func.sum(point.value)).where(point.run_id.in_(chosen))
        measured = select(evaluation.run_id, func.sum(evaluation.seconds)).where(evaluation.run_id.in_(chosen))
        told = (steps.where(point.name.in_(STEP_SECONDS)).group_by(point.run_id), measured.group_by(evaluation.run_id))
        spent: dict[int, float] = defaultdict(float)
        with self._session() as session:
            for each in told:
                for run, seconds in session.execute(each):
                    spent[run] += seconds or 0.0
        return dict(spent)

    def resources(self, run: int, after: datetime | None = None) -> list[views.Resource]:
        """What the run took of its machine after a moment, in order."""
        chosen = select(tables.Resource).filter_by(run_id=run).order_by(tables.Resource.at)
        if after is not None:
            chosen = chosen.where(tables.Resource.at > after)
        with self._session() as session:
            return [_view(views.Resource, row) for row in session.scalars(chosen)]

    def points(self, run: int, after: int = -1, names: Iterable[str] | None = None) -> list[views.Point]:
        """The numbers of a run's steps after a step, in order: a page asks only for what it has not yet drawn."""
        point = tables.Point
        chosen = select(point.step, point.name, point.value).where(point.run_id == run, point.step > after)
        if names is not None:
            chosen = chosen.where(point.name.in_(list(names)))
        with self._session() as session:
            rows = session.execute(chosen.order_by(point.step, point.name))
            return [views.Point(step, name, nan if value is None else value) for step, name, value in rows]

    def last_step(self, run: int) -> int | None:
        """How far a run has told its numbers; one look into the key, however many there are."""
        with self._session() as session:
            return session.scalar(select(func.max(tables.Point.step)).where(tables.Point.run_id == run))

    def rollouts(self, run: int, after: int = -1, until: int | None = None) -> list[views.Rollout]:
        rollout = tables.Rollout
        chosen = select(rollout).where(rollout.run_id == run, rollout.step > after)
        if until is not None:
            chosen = chosen.where(rollout.step <= until)
        with self._session() as session:
            rows = session.scalars(chosen.order_by(rollout.step, rollout.position))
            return [_view(views.Rollout, row) for row in rows]

    def rollout_steps(self, run: int) -> list[int]:
        """The steps of a run that rollouts were kept of."""
        chosen = select(tables.Rollout.step).filter_by(run_id=run).distinct().order_by(tables.Rollout.step)
        with self._session() as session:
            return list(session.scalars(chosen))

    def runs_with_rollouts(self, project: int) -> list[views.Run]:
        """The newest first."""
        kept = select(tables.Rollout.run_id).where(tables.Rollout.run_id == tables.Run.id).exists()
        chosen = _runs().where(tables.Run.project_id == project, kept).order_by(tables.Run.id.desc())
        with self._session() as session:
            return [_run(run, cycle) for run, cycle in session.execute(chosen)]

    def last_rollout(self, run: int) -> int | None:
        """The last step of a run that rollouts were kept of."""
        with self._session() as session:
            return session.scalar(select(func.max(tables.Rollout.step)).where(tables.Rollout.run_id == run))

    def events(self, project: int, limit: int = 50) -> list[views.Event]:
        """The newest first."""
        chosen = select(tables.Event).join(tables.Run).where(tables.Run.project_id == project)
        with self._session() as session:
            rows = session.scalars(chosen.order_by(tables.Event.id.desc()).limit(limit))
            return [_view(views.Event, row) for row in rows]

    def promotions(self, project: int) -> list[views.Promotion]:
        """The newest first."""
        chosen = select(tables.Promotion, tables.Cycle.number).outerjoin(tables.Cycle)
        chosen = chosen.where(tables.Promotion.project_id == project).order_by(tables.Promotion.id.desc())
        with self._session() as session:
            return [_view(views.Promotion, row, cycle=number) for row, number in session.execute(chosen)]

    # What people said, and what was read

    def notes(self, project: int, *, cycle: int | None = None, checkpoint: int | None = None) -> list[views.Note]:
        """All of a project or, by its id, of one cycle or one checkpoint; the oldest first."""
        chosen = (
            select(tables.Note, tables.Cycle.number).outerjoin(tables.Cycle).where(tables.Note.project_id == project)
        )
        if cycle is not None:
            chosen = chosen.where(tables.Note.cycle_id == cycle)
        if checkpoint is not None:
            chosen = chosen.where(tables.Note.checkpoint_id == checkpoint)
        with self._session() as session:
            rows = session.execute(chosen.order_by(tables.Note.id))
            return [_view(views.Note, note, cycle=number) for note, number in rows]

    def documents(self, corpus: int) -> list[views.Document]:
        chosen = select(tables.Document).filter_by(corpus_id=corpus).order_by(tables.Document.position)
        with self._session() as session:
            return [_view(views.Document, row) for row in session.scalars(chosen)]

    @contextmanager
    def _session(self) -> Iterator[Session]:
        try:
            with Session(self._engine) as session:
                yield session
        except SQLAlchemyError as error:
            raise RecordError(f"The record could not be read: {reason(error)}.") from error

    def _last(self, chosen: Select[tables.Checkpoint, int]) -> views.Checkpoint | None:
        with self._session() as session:
            row = session.execute(chosen.order_by(tables.Checkpoint.id.desc()).limit(1)).first()
            return _checkpoint(row) if row else None


def _view(kind: type[View], row: Any, **given: Any) -> View:
    """A view of a row: its fields are the row's columns of the same names, and what is given besides."""
    names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return kind(**{name: getattr(row, name) for name in names}, **given)


def _checkpoints() -> Select[tables.Checkpoint, int]:
    return select(tables.Checkpoint, tables.Cycle.number).outerjoin(tables.Cycle)


def _checkpoint(row: Any) -> views.Checkpoint:
    return _view(views.Checkpoint, row[0], cycle=row[1])


def _promoted_in_its_cycle() -> ColumnElement[int]:
    """0 where it was not; else the later, the higher."""
    own = (
        tables.Promotion.checkpoint_id == tables.Checkpoint.id,
        tables.Promotion.cycle_id == tables.Checkpoint.cycle_id,
    )
    promoted = select(func.max(tables.Promotion.id)).where(*own, tables.Promotion.decision == "promoted")
    return func.coalesce(promoted.correlate(tables.Checkpoint).scalar_subquery(), 0)


def _project_checkpoints(session: Session, project: int) -> list[views.Checkpoint]:
    chosen = _checkpoints().where(tables.Checkpoint.project_id == project).order_by(tables.Checkpoint.id)
    return [_checkpoint(row) for row in session.execute(chosen)]


def _silent(project: int, after: timedelta) -> list[ColumnElement[bool]]:
    run = tables.Run
    return [run.project_id == project, run.status == "running", run.heartbeat_at < now() - after]


def _run(row: tables.Run, cycle: int | None) -> views.Run:
    return _view(views.Run, row, cycle=cycle, inputs=RunInputs.from_json(row.inputs))


def _runs() -> Select[tables.Run, int]:
    return select(tables.Run, tables.Cycle.number).outerjoin(tables.Cycle)
