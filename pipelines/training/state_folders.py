"""Where the saved state of an unfinished run is."""

from pathlib import Path

from pipelines.project.project import Project
from recovery.resume_state import has_progress


def progress_folder(project: Project, run: int) -> Path:
    return project.home / "progress" / f"run-{run:04d}"


def last_good_folder(project: Project, run: int) -> Path:
    """The state at the start, or at the last probe that did not end the run; without probes at the last report."""
    folder = progress_folder(project, run)
    return folder.with_name(folder.name + "-good")


def has_started(project: Project, run: int) -> bool:
    """Whether the run has a saved state or a checkpoint to go on from."""
    return has_progress(progress_folder(project, run)) or project.reader.run_checkpoint(run) is not None
