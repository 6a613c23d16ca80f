"""Checkpoints for tests that need a record but no model."""

from db.tables import Role
from pipelines.project.checkpoints import weights_hash
from pipelines.project.project import Project


def record_checkpoint(project: Project, cycle: int, size: int, role: Role = "recovered") -> int:
    """Record a run and its checkpoint, whose weights are `size` bytes; returns the checkpoint's id."""
    run = project.tracker.start_run(project.id, "distill", cycle)
    folder = project.checkpoint_folder(run)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * size)
    checkpoint = project.tracker.checkpoint(
        project.id, role, folder, parent=project.clean.id, run=run, cycle=cycle, hash=weights_hash(folder)
    )
    project.tracker.finish_run(run, "done")
    return checkpoint
