"""The read side of the record: `Reader` has every query of the command line and the dashboard."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import nan
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Engine, Select, and_, func, literal, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, aliased

from db import RecordError
from db.column_types import database_time
from db.engine import reason
from db.headline_scores import IS_NO_PROBE, stage, suite_scores
from db.tables import (
    GIVEN_UP,
    Checkpoint,
    Corpus,
    Cycle,
    Document,
    Evaluation,
    Item,
    Note,
    Point,
    Project,
    Promotion,
    Rollout,
    Run,
    Score,
    Stage,
    Study,
    Table,
)

STEP_SECONDS = ("rollout_seconds", "teacher_seconds", "update_seconds")  # metrics that add up to a step's duration
STALE_SECONDS = 120  # since the last heartbeat of a run; a live process sends one every ten seconds

Row = TypeVar("Row", bound=Table)


class StepMetric(NamedTuple):
    step: int
    name: str
    value: float  # may be NaN


class Reader:
    """Queries by project, checkpoint, cycle or run. Each call is one short transaction, so no writer waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def projects(self) -> list[Project]:
        return self._all(select(Project).order_by(Project.id))

    def project(self, name: str) -> Project | None:
        return next((project for project in self.projects() if project.name == name), None)

    def changes(self, project: int) -> tuple[Any, ...]:
        """A value that differs once a cycle, run, checkpoint, score, decision, note or study of the project changed.

        It also changes when a run becomes stale, which nothing writes to the database, and when an unfinished one is
        resumed or given up. The cost does not depend on the length of the history, so a page can poll it.
        """
        latest = [
            select(func.max(column)).where(column.class_.project_id == project).scalar_subquery()
            for column in (
                Cycle.id, Cycle.closed_at, Run.id, Run.finished_at, Checkpoint.id,
                Checkpoint.deleted_at, Promotion.id, Note.id,
                Study.id, Study.updated_at,
            )
        ]  # fmt: skip
        # Evaluations of other projects count too: an unnecessary redraw costs less than a join in every poll.
        evaluations = select(func.max(Evaluation.id)).scalar_subquery()
        with self._session() as session:
            marks = session.execute(select(*latest, evaluations)).one()
            resumable = Run.status != "done", ~func.coalesce(Run.error, "").startswith(GIVEN_UP)
            unfinished = select(Run.id, Run.status, _is_stale()).where(Run.project_id == project, *resumable)
            return (*marks, *map(tuple, session.execute(unfinished.order_by(Run.id))))

    # Checkpoints, by the parts of a reference (base, current, cycle:3, run:7)

    def checkpoint(self, id: int) -> Checkpoint | None:
        return self._last(Checkpoint.id == id)

    def base(self, project: int) -> Checkpoint | None:
        """The project's clean model: the first checkpoint recorded as its base."""
        first = select(func.min(Checkpoint.id)).filter_by(project_id=project, role="base")
        return self._last(Checkpoint.id == first.scalar_subquery())

    def current(self, project: int) -> Checkpoint | None:
        """The last promoted checkpoint; the base before any promotion; None when the record has no base either."""
        promoted = (
            select(Promotion.checkpoint_id)
            .filter_by(project_id=project, decision="promoted")
            .order_by(Promotion.id.desc())
            .limit(1)
        )
        return self._last(Checkpoint.id == promoted.scalar_subquery()) or self.base(project)

    def cycle_checkpoint(
        self, project: int, cycle: int, role: Literal["midtrained", "recovered"] = "recovered"
    ) -> Checkpoint | None:
        """The promoted checkpoint of a cycle, else that of its last attempt."""
        of_cycle = and_(Cycle.project_id == project, Cycle.number == cycle)
        return self._last(of_cycle, Checkpoint.role == role, Checkpoint.id == _named_in_its_cycle())

    def run_checkpoint(self, run: int) -> Checkpoint | None:
        """The checkpoint that a run ended with."""
        return self._last(Checkpoint.run_id == run)

    def checkpoints(self, project: int) -> list[Checkpoint]:
        """All checkpoints of a project, the oldest first."""
        return self._checkpoints(_of_project(project))

    def stages(self, project: int) -> list[Stage]:
        """All checkpoints of a project with their headline scores, the oldest first."""
        with self._session() as session:
            scores = suite_scores(session, project)
            checkpoints = _read_checkpoints(session, _of_project(project))
        return [stage(checkpoint, scores, checkpoint.cycle) for checkpoint in checkpoints]

    def lineage(self, checkpoint: int) -> list[Checkpoint]:
        """A checkpoint and its ancestors, up to the clean model."""
        chain = select(Checkpoint.id, Checkpoint.parent_id, literal(0).label("depth"))
        line = chain.where(Checkpoint.id == checkpoint).cte("line", recursive=True)
        parent = select(Checkpoint.id, Checkpoint.parent_id, line.c.depth + 1)
        line = line.union_all(parent.where(Checkpoint.id == line.c.parent_id))
        return self._checkpoints(_checkpoint_rows().join(line, line.c.id == Checkpoint.id).order_by(line.c.depth))

    # Cycles and scores

    def cycles(self, project: int) -> list[Cycle]:
        """All cycles of a project by number, with the headline scores of their three stages."""
        with self._session() as session:
            rows = session.execute(
                select(Cycle, Corpus.path)
                .outerjoin(Corpus, Cycle.corpus_id == Corpus.id)
                .where(Cycle.project_id == project)
                .order_by(Cycle.number)
            ).all()
            scores = suite_scores(session, project)
            checkpoints = _read_checkpoints(session, _of_project(project))
            decisions = select(Promotion.cycle_id, Promotion.why).filter_by(project_id=project)
            reasons = {cycle: why for cycle, why in session.execute(decisions.order_by(Promotion.id))}
            last_runs = select(func.max(Run.id)).filter_by(project_id=project).group_by(Run.cycle_id)
            given_up = select(Run.cycle_id).where(Run.id.in_(last_runs), Run.error.startswith(GIVEN_UP))
            discarded = set(session.scalars(given_up))
        base = next((checkpoint for checkpoint in checkpoints if checkpoint.role == "base"), None)
        stages = {
            (checkpoint.cycle, checkpoint.role): checkpoint for checkpoint in checkpoints if not checkpoint.superseded
        }
        parents: dict[int | None, Checkpoint] = {checkpoint.id: checkpoint for checkpoint in checkpoints}
        cycles = []
        for cycle, documents in rows:
            damaged, recovered = (
                stage(stages.get((cycle.number, role)), scores, cycle.number) for role in ("midtrained", "recovered")
            )
            cycles.append(
                _with(
                    cycle,
                    documents=documents,
                    verdict=recovered.checkpoint.verdict if recovered.checkpoint else None,
                    clean=stage(base, scores, cycle.number, damaged.scores | recovered.scores),
                    damaged=damaged,
                    recovered=recovered,
                    decision_reason=reasons.get(cycle.id),
                    student=parents.get(recovered.checkpoint.parent_id) if recovered.checkpoint else None,
                    is_discarded=cycle.id in discarded and cycle.status == "open" and damaged.checkpoint is None,
                )
            )
        return cycles

    def evaluated(self, project: int) -> set[int]:
        """The checkpoints of a project with any evaluation that is no probe, be it of a public benchmark alone."""
        chosen = select(Evaluation.checkpoint_id).join(Checkpoint).where(Checkpoint.project_id == project, IS_NO_PROBE)
        with self._session() as session:
            return set(session.scalars(chosen))

    def evaluations(self, checkpoint: int) -> list[Evaluation]:
        """All evaluations of a checkpoint with their scores and cycles, the oldest first."""
        with self._session() as session:
            selected = Evaluation.checkpoint_id == checkpoint
            scores: dict[int, dict[str, Score]] = defaultdict(dict)
            score_rows = select(Score).join(Evaluation).where(selected)
            for row in session.scalars(score_rows.order_by(Score.position, Score.metric)):
                scores[row.evaluation_id][row.metric] = row
            of_run = select(Evaluation, Cycle.number).outerjoin(Run, Run.id == Evaluation.run_id)
            rows = session.execute(of_run.outerjoin(Cycle).where(selected).order_by(Evaluation.id))
            return [_with(row, scores=scores[row.id], cycle=cycle) for row, cycle in rows]

    def drift(self, project: int) -> dict[int, dict[str, Score]]:
        """By checkpoint and metric, the latest drift from the clean model."""
        drift: dict[int, dict[str, Score]] = defaultdict(dict)
        chosen = select(Evaluation.checkpoint_id, Score).join(Score).join(Checkpoint)
        chosen = chosen.where(Checkpoint.project_id == project, Evaluation.task == "drift")
        with self._session() as session:
            for checkpoint, score in session.execute(chosen.order_by(Evaluation.id)):
                drift[checkpoint][score.metric] = score
        return dict(drift)

    def items(self, evaluation: int) -> list[Item]:
        return self._all(select(Item).filter_by(evaluation_id=evaluation).order_by(Item.position))

    def passes(self, evaluation: int) -> dict[str, bool | None]:
        """Which items passed, by key: enough to compare two evaluations, without loading the texts."""
        return self._by_key(evaluation, Item.passed)

    def verdicts(self, evaluation: int) -> dict[str, Any]:
        """The verdicts on the items, by key, without their texts."""
        return self._by_key(evaluation, Item.verdicts)

    def task(self, evaluation: int) -> tuple[str | None, ...]:
        """The suite, task, data and file of an evaluation: where they agree, keys of items mean the same items."""
        with self._session() as session:
            row = session.get_one(Evaluation, evaluation)
            return row.suite, row.task, row.data, row.content

    # Runs and their telemetry

    def runs(self, project: int) -> list[Run]:
        """All runs of a project, the newest first."""
        return self._runs(Run.project_id == project)

    def running(self, project: int) -> list[Run]:
        """Those that have not ended, stale ones too, the newest first."""
        return self._runs(Run.project_id == project, Run.status == "running")

    def run(self, id: int) -> Run | None:
        return next(iter(self._runs(Run.id == id)), None)

    def cancel_requested(self, run: int) -> bool:
        """Whether the run was requested to stop."""
        with self._session() as session:
            return session.scalar(select(Run.cancel_requested_at).filter_by(id=run)) is not None

    def busy_seconds(self, runs: Iterable[int]) -> dict[int, float]:
        """By run, the seconds that its steps and evaluations took together.

        That is less than the time from its start to its end, which includes any interruption.
        """
        ids = list(runs)
        steps = select(Point.run_id, func.sum(Point.value)).where(Point.run_id.in_(ids), Point.name.in_(STEP_SECONDS))
        evaluations = select(Evaluation.run_id, func.sum(Evaluation.seconds)).where(Evaluation.run_id.in_(ids))
        totals: dict[int, float] = defaultdict(float)
        with self._session() as session:
            for query in (steps.group_by(Point.run_id), evaluations.group_by(Evaluation.run_id)):
                for run, seconds in session.execute(query):
                    totals[run] += seconds or 0.0
        return dict(totals)

    def points(self, run: int, after: int = -1, names: Iterable[str] | None = None) -> list[StepMetric]:
        """A run's metrics after a step, in order; a page passes the last step that it has drawn."""
        chosen = select(Point.step, Point.name, Point.value).where(Point.run_id == run, Point.step > after)
        if names is not None:
            chosen = chosen.where(Point.name.in_(list(names)))
        with self._session() as session:
            rows = session.execute(chosen.order_by(Point.step, Point.name))
            return [StepMetric(step, name, nan if value is None else value) for step, name, value in rows]

    def last_step(self, run: int) -> int | None:
        """The last step of a run with metrics; one index look-up, however many there are."""
        return self._last_step(Point, run)

    def rollouts(self, run: int, step: int | None = None) -> list[Rollout]:
        """A run's rollouts in order, or those of one step."""
        of_step = {} if step is None else {"step": step}
        chosen = select(Rollout).filter_by(run_id=run, **of_step)
        return self._all(chosen.order_by(Rollout.step, Rollout.position))

    def rollout_steps(self, run: int) -> list[int]:
        """The steps of a run that have rollouts."""
        return self._all(select(Rollout.step).filter_by(run_id=run).distinct().order_by(Rollout.step))

    def runs_with_rollouts(self, project: int) -> list[Run]:
        """The newest first."""
        has_rollouts = select(Rollout.run_id).where(Rollout.run_id == Run.id).exists()
        return self._runs(Run.project_id == project, has_rollouts)

    def last_rollout(self, run: int) -> int | None:
        """The last step of a run that has rollouts."""
        return self._last_step(Rollout, run)

    def promotions(self, project: int) -> list[Promotion]:
        """The newest first."""
        chosen = (
            select(Promotion, Cycle.number, Checkpoint.verdict)
            .outerjoin(Cycle, Cycle.id == Promotion.cycle_id)
            .join(Checkpoint, Checkpoint.id == Promotion.checkpoint_id)
            .where(Promotion.project_id == project)
            .order_by(Promotion.id.desc())
        )
        with self._session() as session:
            rows = session.execute(chosen)
            return [_with(row, cycle=number, verdict=verdict) for row, number, verdict in rows]

    # Notes, studies and documents

    def notes(self, project: int, *, cycle: int | None = None) -> list[Note]:
        """The notes of a project, or of one cycle (by its id); the oldest first."""
        chosen = select(Note, Cycle.number).outerjoin(Cycle).where(Note.project_id == project)
        if cycle is not None:
            chosen = chosen.where(Note.cycle_id == cycle)
        with self._session() as session:
            rows = session.execute(chosen.order_by(Note.id))
            return [_with(note, cycle=number) for note, number in rows]

    def studies(self, project: int) -> list[Study]:
        """The newest first."""
        return self._all(select(Study).filter_by(project_id=project).order_by(Study.id.desc()))

    def study(self, id: int) -> Study | None:
        with self._session() as session:
            return session.get(Study, id)

    def documents(self, corpus: int) -> list[Document]:
        return self._all(select(Document).filter_by(corpus_id=corpus).order_by(Document.position))

    @contextmanager
    def _session(self) -> Iterator[Session]:
        try:
            with Session(self._engine) as session:
                yield session
        except SQLAlchemyError as error:
            raise RecordError(
                f"The record could not be read: {reason(error)}. Run `recover doctor` to check it."
            ) from error

    def _all(self, chosen: Select[Any]) -> list[Any]:
        with self._session() as session:
            return list(session.scalars(chosen))

    def _by_key(self, evaluation: int, column: Any) -> dict[str, Any]:
        chosen = select(Item.key, column).filter_by(evaluation_id=evaluation)
        with self._session() as session:
            return {key: value for key, value in session.execute(chosen.order_by(Item.position))}

    def _last_step(self, table: type[Point] | type[Rollout], run: int) -> int | None:
        with self._session() as session:
            return session.scalar(select(func.max(table.step)).where(table.run_id == run))

    def _checkpoints(self, chosen: Select[Any]) -> list[Checkpoint]:
        with self._session() as session:
            return _read_checkpoints(session, chosen)

    def _last(self, *conditions: ColumnElement[bool]) -> Checkpoint | None:
        found = self._checkpoints(_checkpoint_rows().where(*conditions).order_by(Checkpoint.id.desc()).limit(1))
        return found[0] if found else None

    def _runs(self, *conditions: ColumnElement[bool]) -> list[Run]:
        """The newest first."""
        chosen = select(Run, Cycle.number, _is_stale()).outerjoin(Cycle).where(*conditions).order_by(Run.id.desc())
        with self._session() as session:
            return [_with(run, cycle=cycle, stale=bool(stale)) for run, cycle, stale in session.execute(chosen)]


def _with(row: Row, **others: Any) -> Row:
    """The row with its attributes that are no columns."""
    for name, value in others.items():
        setattr(row, name, value)
    return row


def _checkpoint_rows() -> Select[*tuple[Any, ...]]:
    """Checkpoints with what `_read_checkpoints` adds to them."""
    superseded = Checkpoint.id != _named_in_its_cycle()  # NULL outside any cycle
    columns = Checkpoint, Cycle.number, func.coalesce(superseded, False)
    return select(*columns).outerjoin(Cycle)


def _of_project(project: int) -> Select[Any]:
    return _checkpoint_rows().where(Checkpoint.project_id == project).order_by(Checkpoint.id)


def _read_checkpoints(session: Session, chosen: Select[Any]) -> list[Checkpoint]:
    return [_with(row, cycle=cycle, superseded=bool(superseded)) for row, cycle, superseded in session.execute(chosen)]


def _named_in_its_cycle() -> ColumnElement[int]:
    """The id of the checkpoint that `cycle:N/ROLE` names, for a checkpoint of that role: of several attempts the
    promoted one, unless it was rejected since, else the last."""
    other, later = aliased(Checkpoint), aliased(Promotion)
    rejection = select(later.id).where(later.checkpoint_id == Promotion.checkpoint_id, later.id > Promotion.id)
    promotion = select(func.max(Promotion.id)).where(
        Promotion.checkpoint_id == other.id,
        Promotion.cycle_id == other.cycle_id,
        Promotion.decision == "promoted",
        ~rejection.where(later.decision == "rejected").exists(),
    )
    last_promotion = func.coalesce(promotion.correlate(other).scalar_subquery(), 0)
    attempts = select(other.id).where(other.cycle_id == Checkpoint.cycle_id, other.role == Checkpoint.role)
    named = attempts.order_by(last_promotion.desc(), other.id.desc()).limit(1)
    return named.correlate(Checkpoint).scalar_subquery()


def _is_stale() -> ColumnElement[bool]:
    """Whether a run that is marked as running has been silent for so long that its process is gone."""
    return and_(Run.status == "running", Run.heartbeat_at < database_time(-STALE_SECONDS))
