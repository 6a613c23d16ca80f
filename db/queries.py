"""The read side of the record: `Reader` has every query of the command line and the dashboard."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from math import nan
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, Engine, Select, String, and_, cast, func, literal, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, aliased

from db import tables, views
from db.database_time import database_time
from db.engine import reason
from db.errors import RecordError
from db.headline_scores import stage, suite_scores
from db.run_inputs import RunInputs

STEP_SECONDS = ("rollout_seconds", "teacher_seconds", "update_seconds")  # metrics that add up to a step's duration
STALE_SECONDS = 120  # since the last heartbeat of a run; a live process sends one every ten seconds

View = TypeVar("View")


class Reader:
    """Queries by project, checkpoint, cycle or run. Each call is one short transaction, so no writer waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def projects(self) -> list[views.Project]:
        with self._session() as session:
            rows = session.scalars(select(tables.Project).order_by(tables.Project.id))
            return [_view(views.Project, row) for row in rows]

    def project(self, name: str) -> views.Project | None:
        return next((project for project in self.projects() if project.name == name), None)

    def changes(self, project: int) -> tuple[Any, ...]:
        """A value that differs once a cycle, run, checkpoint, score, decision, note or study of the project changed.

        It also changes when a run becomes stale, which nothing writes to the database. The cost does not depend on
        the length of the history, so a page can poll it.
        """
        latest = [
            select(func.max(column)).where(column.class_.project_id == project).scalar_subquery()
            for column in (
                tables.Cycle.id, tables.Cycle.closed_at, tables.Run.id, tables.Run.finished_at, tables.Checkpoint.id,
                tables.Checkpoint.deleted_at, tables.Promotion.id, tables.Note.id,
                tables.Study.id, tables.Study.updated_at,
            )
        ]  # fmt: skip
        # SQL cannot compare JSON; a changed verdict nearly always has another length.
        length = func.sum(func.length(cast(tables.Checkpoint.verdict, String)))
        verdicts = select(length).where(tables.Checkpoint.project_id == project).scalar_subquery()
        # Evaluations of other projects count too: an unnecessary redraw costs less than a join in every poll.
        evaluations = select(func.max(tables.Evaluation.id)).scalar_subquery()
        with self._session() as session:
            marks = session.execute(select(*latest, verdicts, evaluations)).one()
            stale = select(tables.Run.id).where(tables.Run.project_id == project, _is_stale()).order_by(tables.Run.id)
            return (*marks, tuple(session.scalars(stale)))

    # Checkpoints, by the parts of a reference (base, current, cycle:3, run:7)

    def checkpoint(self, id: int) -> views.Checkpoint | None:
        return self._last(_checkpoints().where(tables.Checkpoint.id == id))

    def base(self, project: int) -> views.Checkpoint | None:
        """The project's clean model: the first checkpoint recorded as its base."""
        chosen = _checkpoints().where(tables.Checkpoint.project_id == project, tables.Checkpoint.role == "base")
        with self._session() as session:
            row = session.execute(chosen.order_by(tables.Checkpoint.id).limit(1)).first()
            return _checkpoint(row) if row else None

    def current(self, project: int) -> views.Checkpoint | None:
        """The last promoted checkpoint; the base before any promotion; None when the record has no base either."""
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
        """The promoted checkpoint of a cycle, else that of its last attempt."""
        chosen = _checkpoints().where(tables.Cycle.project_id == project, tables.Cycle.number == cycle)
        return self._last(chosen.where(tables.Checkpoint.role == role, tables.Checkpoint.id == _named_in_its_cycle()))

    def run_checkpoint(self, run: int, step: int | None = None) -> views.Checkpoint | None:
        """The checkpoint that a run ended with, or the one that it wrote after a step."""
        chosen = _checkpoints().where(tables.Checkpoint.run_id == run)
        return self._last(chosen if step is None else chosen.where(tables.Checkpoint.step == step))

    def probe_checkpoints(self, run: int) -> list[views.Checkpoint]:
        """The checkpoints of a run that were kept for what their probes showed, by step."""
        chosen = _checkpoints().where(tables.Checkpoint.run_id == run, _is_of_probe())
        with self._session() as session:
            return [_checkpoint(row) for row in session.execute(chosen.order_by(tables.Checkpoint.id))]

    def checkpoints(self, project: int) -> list[views.Checkpoint]:
        """All checkpoints of a project, the oldest first."""
        with self._session() as session:
            return _project_checkpoints(session, project)

    def stages(self, project: int) -> list[views.Stage]:
        """All checkpoints of a project with their headline scores, the oldest first."""
        with self._session() as session:
            scores = suite_scores(session, project)
            checkpoints = _project_checkpoints(session, project)
        return [stage(checkpoint, scores, checkpoint.cycle) for checkpoint in checkpoints]

    def lineage(self, checkpoint: int) -> list[views.Checkpoint]:
        """A checkpoint and its ancestors, up to the clean model."""
        chain = select(tables.Checkpoint.id, tables.Checkpoint.parent_id, literal(0).label("depth"))
        line = chain.where(tables.Checkpoint.id == checkpoint).cte("line", recursive=True)
        parent = select(tables.Checkpoint.id, tables.Checkpoint.parent_id, line.c.depth + 1)
        line = line.union_all(parent.where(tables.Checkpoint.id == line.c.parent_id))
        with self._session() as session:
            rows = session.execute(_checkpoints().join(line, line.c.id == tables.Checkpoint.id).order_by(line.c.depth))
            return [_checkpoint(row) for row in rows]

    # Cycles and scores

    def cycles(self, project: int) -> list[views.Cycle]:
        """All cycles of a project by number, with the headline scores of their three stages."""
        with self._session() as session:
            rows = session.execute(
                select(tables.Cycle, tables.Corpus.path)
                .outerjoin(tables.Corpus, tables.Cycle.corpus_id == tables.Corpus.id)
                .where(tables.Cycle.project_id == project)
                .order_by(tables.Cycle.number)
            ).all()
            scores = suite_scores(session, project)
            checkpoints = _project_checkpoints(session, project)
            decisions = select(tables.Promotion.cycle_id, tables.Promotion.why).filter_by(project_id=project)
            reasons = {cycle: why for cycle, why in session.execute(decisions.order_by(tables.Promotion.id))}
        base = next((checkpoint for checkpoint in checkpoints if checkpoint.role == "base"), None)
        stages = {(one.cycle, one.role): one for one in checkpoints if not one.superseded}
        return [
            _view(
                views.Cycle,
                cycle,
                documents=documents,
                verdict=recovered.verdict if (recovered := stages.get((cycle.number, "recovered"))) else None,
                clean=stage(base, scores, cycle.number),
                damaged=stage(stages.get((cycle.number, "midtrained")), scores, cycle.number),
                recovered=stage(recovered, scores, cycle.number),
                decision_reason=reasons.get(cycle.id),
            )
            for cycle, documents in rows
        ]

    def evaluations(self, checkpoint: int) -> list[views.Evaluation]:
        """All evaluations of a checkpoint with their scores, the oldest first."""
        with self._session() as session:
            selected = tables.Evaluation.checkpoint_id == checkpoint
            scores: dict[int, dict[str, views.Score]] = defaultdict(dict)
            score_rows = select(tables.Score).join(tables.Evaluation).where(selected)
            for row in session.scalars(score_rows.order_by(tables.Score.position, tables.Score.metric)):
                scores[row.evaluation_id][row.metric] = _view(views.Score, row)
            rows = session.scalars(select(tables.Evaluation).where(selected).order_by(tables.Evaluation.id))
            return [_view(views.Evaluation, row, scores=scores[row.id]) for row in rows]

    def items(self, evaluation: int) -> list[views.Item]:
        chosen = select(tables.Item).filter_by(evaluation_id=evaluation).order_by(tables.Item.position)
        with self._session() as session:
            return [_view(views.Item, row) for row in session.scalars(chosen)]

    def passes(self, evaluation: int) -> dict[str, bool | None]:
        """Which items passed, by key: enough to compare two evaluations, without loading the texts."""
        chosen = select(tables.Item.key, tables.Item.passed).filter_by(evaluation_id=evaluation)
        with self._session() as session:
            return {key: passed for key, passed in session.execute(chosen.order_by(tables.Item.position))}

    # Runs and their telemetry

    def runs(self, project: int) -> list[views.Run]:
        """All runs of a project, the newest first."""
        chosen = _runs().where(tables.Run.project_id == project).order_by(tables.Run.id.desc())
        with self._session() as session:
            return [_run(*row) for row in session.execute(chosen)]

    def run(self, id: int) -> views.Run | None:
        with self._session() as session:
            row = session.execute(_runs().where(tables.Run.id == id)).first()
            return _run(*row) if row else None

    def cancel_requested(self, run: int) -> bool:
        """Whether the run was requested to stop."""
        with self._session() as session:
            return session.scalar(select(tables.Run.cancel_requested_at).filter_by(id=run)) is not None

    def busy_seconds(self, runs: Iterable[int]) -> dict[int, float]:
        """By run, the seconds that its steps and evaluations took together.

        That is less than the time from its start to its end, which includes any interruption.
        """
        point, evaluation, ids = tables.Point, tables.Evaluation, list(runs)
        steps = select(point.run_id, func.sum(point.value)).where(point.run_id.in_(ids), point.name.in_(STEP_SECONDS))
        evaluations = select(evaluation.run_id, func.sum(evaluation.seconds)).where(evaluation.run_id.in_(ids))
        totals: dict[int, float] = defaultdict(float)
        with self._session() as session:
            for query in (steps.group_by(point.run_id), evaluations.group_by(evaluation.run_id)):
                for run, seconds in session.execute(query):
                    totals[run] += seconds or 0.0
        return dict(totals)

    def resources(self, run: int, after: datetime | None = None) -> list[views.Resource]:
        """The run's memory and processor use after a time, the oldest first."""
        chosen = select(tables.Resource).filter_by(run_id=run).order_by(tables.Resource.at)
        if after is not None:
            chosen = chosen.where(tables.Resource.at > after)
        with self._session() as session:
            return [_view(views.Resource, row) for row in session.scalars(chosen)]

    def points(self, run: int, after: int = -1, names: Iterable[str] | None = None) -> list[views.Point]:
        """A run's metrics after a step, in order; a page passes the last step that it has drawn."""
        point = tables.Point
        chosen = select(point.step, point.name, point.value).where(point.run_id == run, point.step > after)
        if names is not None:
            chosen = chosen.where(point.name.in_(list(names)))
        with self._session() as session:
            rows = session.execute(chosen.order_by(point.step, point.name))
            return [views.Point(step, name, nan if value is None else value) for step, name, value in rows]

    def last_step(self, run: int) -> int | None:
        """The last step of a run with metrics; one index look-up, however many there are."""
        with self._session() as session:
            return session.scalar(select(func.max(tables.Point.step)).where(tables.Point.run_id == run))

    def rollouts(self, run: int, after: int = -1, until: int | None = None) -> list[views.Rollout]:
        """A run's rollouts after a step, up to and including another, in order."""
        rollout = tables.Rollout
        chosen = select(rollout).where(rollout.run_id == run, rollout.step > after)
        if until is not None:
            chosen = chosen.where(rollout.step <= until)
        with self._session() as session:
            rows = session.scalars(chosen.order_by(rollout.step, rollout.position))
            return [_view(views.Rollout, row) for row in rows]

    def rollout_steps(self, run: int) -> list[int]:
        """The steps of a run that have rollouts."""
        chosen = select(tables.Rollout.step).filter_by(run_id=run).distinct().order_by(tables.Rollout.step)
        with self._session() as session:
            return list(session.scalars(chosen))

    def runs_with_rollouts(self, project: int) -> list[views.Run]:
        """The newest first."""
        has_rollouts = select(tables.Rollout.run_id).where(tables.Rollout.run_id == tables.Run.id).exists()
        chosen = _runs().where(tables.Run.project_id == project, has_rollouts).order_by(tables.Run.id.desc())
        with self._session() as session:
            return [_run(*row) for row in session.execute(chosen)]

    def last_rollout(self, run: int) -> int | None:
        """The last step of a run that has rollouts."""
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
        chosen = (
            select(tables.Promotion, tables.Cycle.number, tables.Checkpoint.verdict)
            .outerjoin(tables.Cycle, tables.Cycle.id == tables.Promotion.cycle_id)
            .join(tables.Checkpoint, tables.Checkpoint.id == tables.Promotion.checkpoint_id)
            .where(tables.Promotion.project_id == project)
            .order_by(tables.Promotion.id.desc())
        )
        with self._session() as session:
            rows = session.execute(chosen)
            return [_view(views.Promotion, row, cycle=number, verdict=verdict) for row, number, verdict in rows]

    # Notes, studies and documents

    def notes(self, project: int, *, cycle: int | None = None, checkpoint: int | None = None) -> list[views.Note]:
        """The notes of a project, or of one cycle or checkpoint (by its id); the oldest first."""
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

    def studies(self, project: int) -> list[views.Study]:
        """The newest first."""
        chosen = select(tables.Study).filter_by(project_id=project).order_by(tables.Study.id.desc())
        with self._session() as session:
            return [_view(views.Study, row) for row in session.scalars(chosen)]

    def study(self, id: int) -> views.Study | None:
        with self._session() as session:
            row = session.get(tables.Study, id)
            return _view(views.Study, row) if row else None

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
            raise RecordError(
                f"The record could not be read: {reason(error)}. Run `recover doctor` to check it."
            ) from error

    def _last(self, chosen: Select[tables.Checkpoint, int, bool, bool]) -> views.Checkpoint | None:
        with self._session() as session:
            row = session.execute(chosen.order_by(tables.Checkpoint.id.desc()).limit(1)).first()
            return _checkpoint(row) if row else None


def _view(kind: type[View], row: Any, **others: Any) -> View:
    """A view of a row: its fields are the columns of the same names, and the other values."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(row, name) for name in names}, **others)


def _checkpoints() -> Select[tables.Checkpoint, int, bool, bool]:
    superseded = tables.Checkpoint.id != _named_in_its_cycle()  # NULL outside any cycle
    columns = tables.Checkpoint, tables.Cycle.number, func.coalesce(superseded, False), _is_of_probe()
    return select(*columns).outerjoin(tables.Cycle)


def _checkpoint(row: Any) -> views.Checkpoint:
    return _view(views.Checkpoint, row[0], cycle=row[1], superseded=bool(row[2]), of_probe=bool(row[3]))


def _is_of_probe() -> ColumnElement[bool]:
    """Whether the run of a checkpoint wrote a later one."""
    later = aliased(tables.Checkpoint)
    after = select(later.id).where(later.run_id == tables.Checkpoint.run_id, later.id > tables.Checkpoint.id)
    return after.correlate(tables.Checkpoint).exists()


def _named_in_its_cycle() -> ColumnElement[int]:
    """The id of the checkpoint that `cycle:N/ROLE` names, for a checkpoint of that role: of several attempts the
    promoted one, else the last."""
    other = aliased(tables.Checkpoint)
    promotion = select(func.max(tables.Promotion.id)).where(
        tables.Promotion.checkpoint_id == other.id,
        tables.Promotion.cycle_id == other.cycle_id,
        tables.Promotion.decision == "promoted",
    )
    last_promotion = func.coalesce(promotion.correlate(other).scalar_subquery(), 0)
    attempts = select(other.id).where(
        other.cycle_id == tables.Checkpoint.cycle_id, other.role == tables.Checkpoint.role
    )
    named = attempts.order_by(last_promotion.desc(), other.id.desc()).limit(1)
    return named.correlate(tables.Checkpoint).scalar_subquery()


def _project_checkpoints(session: Session, project: int) -> list[views.Checkpoint]:
    chosen = _checkpoints().where(tables.Checkpoint.project_id == project).order_by(tables.Checkpoint.id)
    return [_checkpoint(row) for row in session.execute(chosen)]


def _is_stale() -> ColumnElement[bool]:
    """Whether a run that is marked as running has been silent for so long that its process is gone."""
    return and_(tables.Run.status == "running", tables.Run.heartbeat_at < database_time(-STALE_SECONDS))


def _run(row: tables.Run, cycle: int | None, stale: bool) -> views.Run:
    return _view(views.Run, row, cycle=cycle, stale=bool(stale), inputs=RunInputs.from_json(row.inputs))


def _runs() -> Select[tables.Run, int, bool]:
    return select(tables.Run, tables.Cycle.number, _is_stale()).outerjoin(tables.Cycle)
