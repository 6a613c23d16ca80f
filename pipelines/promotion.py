"""A person's decision about a checkpoint, on record with who and why."""

from db.tracker import Decision
from db.views import Checkpoint
from pipelines.cycle import who
from pipelines.project.project import Project
from recovery.errors import RecoverError


def decide(
    project: Project, checkpoint: Checkpoint, decision: Decision, why: str, *, by: str = "", closes_cycle: bool = True
) -> None:
    """The cycle that the checkpoint ends, if any, is closed with it; turning down another candidate closes none."""
    cycles = {c.number: c for c in project.reader.cycles(project.id)}
    cycle = cycles.get(checkpoint.cycle or 0) if checkpoint.role == "recovered" and closes_cycle else None
    if cycle and decision == "rejected" and cycle.recovered.checkpoint != checkpoint:
        cycle = None
    if decision == "rejected" and project.current.id == checkpoint.id:
        raise RecoverError(f"{checkpoint.reference} is the current checkpoint; `recover rollback` goes back from it")
    project.tracker.promote(project.id, cycle.id if cycle else None, checkpoint.id, decision, by or who(), why)


def before_last(project: Project) -> Checkpoint:
    """What was current before it was promoted; the clean model, where nothing was."""
    current = project.current
    if current.id == project.clean.id:
        raise RecoverError("the clean model itself is current, so there is nothing to go back to")
    promoted = [p for p in project.reader.promotions(project.id) if p.decision == "promoted"]  # the newest first
    # Going back is itself a promotion: what counts is what was current before the present one first became it.
    first = max(i for i, p in enumerate(promoted) if p.checkpoint_id == current.id)
    earlier = [p.checkpoint_id for p in promoted[first + 1 :]]
    found = project.reader.checkpoint(earlier[0]) if earlier else None
    return project.verify(found or project.clean)
