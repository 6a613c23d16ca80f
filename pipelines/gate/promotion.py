"""A person's decision about a checkpoint, recorded with name and reason."""

import getpass
from contextlib import nullcontext
from itertools import groupby

from db.tables import Checkpoint, Decision
from db.verdicts import gate_outcome, overrules_gate
from pipelines.project.lock import command_lock
from pipelines.project.project import Project
from recovery.errors import RecoverError

ROLLED_BACK = "rolled back from"  # how the reason of a rollback begins, which is recorded as a promotion


def decide(
    project: Project,
    checkpoint: Checkpoint,
    decision: Decision,
    reason: str,
    *,
    by: str = "",
) -> None:
    """Promote or reject a checkpoint, and close its cycle with that decision; against the gate only with a reason.

    Refused while a command holds the project, as one that trains does: its gate would promote a descendant of what was
    current when it began.

    The cycle stays as it is if the rejected checkpoint is not the cycle's latest one."""
    with command_lock(project):
        check_decision(project, checkpoint, decision, reason)
        cycles = {c.number: c for c in project.reader.cycles(project.id)}
        cycle = cycles.get(checkpoint.cycle or 0) if checkpoint.role == "recovered" else None
        if cycle and decision == "rejected" and checkpoint.superseded:
            cycle = None
        cycle_id, who, why = cycle.id if cycle else None, by or current_user(), reason.strip() or "decided by a person"
        project.tracker.promote(project.id, cycle_id, checkpoint.id, decision, who, why)


def roll_back(project: Project, reason: str = "", *, dry_run: bool = False) -> tuple[Checkpoint, Checkpoint]:
    """Make the previous checkpoint current again; with `dry_run` only say which that is. No cycle's status changes.

    Refused while a command holds the project. Returns the checkpoint that was current, and the previous one."""
    with nullcontext() if dry_run else command_lock(project):
        current, previous = project.recorded_current, previous_checkpoint(project)
        why = ": ".join(filter(None, [f"{ROLLED_BACK} {current.reference}", reason.strip()]))
        check_decision(project, previous, "promoted", why)
        if not dry_run:
            project.tracker.promote(project.id, None, previous.id, "promoted", current_user(), why)
    return current, previous


def check_decision(project: Project, checkpoint: Checkpoint, decision: Decision, reason: str) -> None:
    """Raise RecoverError for a decision against the gate's verdict, or past it, without a reason, and for the rejection
    of the current checkpoint, or the promotion of a folder that is no model."""
    if decision == "promoted" and checkpoint.role == "external":
        from recovery.models.students import load_chat, parameters_of  # imports torch, which takes a second

        load_chat(checkpoint.path)
        parameters_of(checkpoint.path)
    if overrules_gate(decision, checkpoint.verdict) and not reason.strip():
        action = "promoting" if decision == "promoted" else "rejecting"
        raise RecoverError(
            f"The gate's verdict on {checkpoint.reference} is {gate_outcome(checkpoint.verdict)}: {action} it anyway "
            "needs a reason, which is stored. Give one with --reason TEXT."
        )
    if decision == "rejected" and project.recorded_current.id == checkpoint.id:
        raise RecoverError(
            f"The checkpoint {checkpoint.reference} is the current one. Return to the previous one with "
            "`recover rollback` instead."
        )


def previous_checkpoint(project: Project) -> Checkpoint:
    """The checkpoint that was current before the present one was promoted, and was not rejected since; the clean model,
    if there is none."""
    current = project.recorded_current
    if current.id == project.clean.id:
        raise RecoverError("The clean model is the current checkpoint, so there is nothing to go back to.")
    line: list[int] = []  # what was current, the latest last, without what was rolled back or rejected
    for decision in reversed(project.reader.promotions(project.id)):
        id = decision.checkpoint_id
        if decision.decision == "rejected":
            line = [other for other, _ in groupby(other for other in line if other != id)]
        elif decision.why.startswith(ROLLED_BACK) and line[-2:-1] == [id]:
            line.pop()
        elif line[-1:] != [id]:
            line.append(id)
    previous = project.reader.checkpoint(line[-2]) if line[1:] else None
    return project.verify(previous or project.clean)


def current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user id has no name, as in a container
        return "unknown"
