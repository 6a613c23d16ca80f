"""Checkpoints for tests that need a record but no model."""

from db.tables import Decision, Role
from pipelines.gate.promotion import decide
from pipelines.project.project import Project, weights_hash


def record_checkpoint(
    project: Project, cycle: int | None, size: int, role: Role = "recovered", parent: int | None = None
) -> int:
    """Record a run and its checkpoint, whose weights are `size` bytes; returns the checkpoint's id."""
    run = project.tracker.start_run(project.id, "distill", cycle)
    folder = project.checkpoint_folder(run)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * size)
    checkpoint = project.tracker.checkpoint(
        project.id, role, folder, parent=parent or project.clean.id, run=run, cycle=cycle, hash=weights_hash(folder)
    )
    project.tracker.finish_run(run, "done")
    return checkpoint


def record_cycle(project: Project, decision: Decision | None = None, role: Role = "recovered") -> int:
    """Record a cycle with one checkpoint, and what was decided on it; returns the checkpoint's id."""
    cycle, number = project.tracker.open_cycle(project.id)
    checkpoint = record_checkpoint(project, cycle, number, role)
    if decision:
        decide(project, project.resolve(f"cycle:{number}"), decision, "because")
    return checkpoint
