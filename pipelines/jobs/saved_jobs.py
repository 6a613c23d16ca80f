"""Save a job with all that it needs, in the project and in its store, and end it in both."""

from pathlib import Path

from db.views import GGUF_FOLDER
from pipelines.jobs.job import Job
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from pipelines.project.weights_hash import weights_hash


def save_job(project: Project, job: Job) -> Job:
    """In the store first: what can be resumed here can be resumed elsewhere."""
    if store := project.store:
        check = project.tracker.check_lease
        base = Path(project.base)
        if base.parent == project.home / GGUF_FOLDER:
            store.send_folder(base, f"{GGUF_FOLDER}/{base.name}", check)
        for checkpoint in project.reader.checkpoints(project.id):
            folder = relocate(project.home, Path(checkpoint.path))
            is_kept = checkpoint.run_id and not checkpoint.deleted_at and folder.is_dir()
            if not is_kept or not checkpoint.hash or store.has_checkpoint(folder, checkpoint.hash):
                continue
            if weights_hash(folder) == checkpoint.hash:  # of before there was a store; damaged weights stay here
                store.send_checkpoint(folder, checkpoint.hash, check)
        check()
        store.send_job(job.id, job.as_json(), _inputs(project.home, job))
    return job.save(project.home)


def end_job(project: Project, job: Job) -> None:
    """It is done, or discarded."""
    if project.store:
        project.store.end_job(job.id)
    job.delete(project.home)


def _inputs(home: Path, job: Job) -> list[Path]:
    """The texts that the project has stored, for this job and for those of earlier cycles."""
    stored = [file for folder in ("documents", "questions") for file in (home / folder).rglob("*")]
    stored = [file for file in stored if file.is_file() and file.suffix != ".partial"]
    return [*stored, *(file for file in (job.prompts, job.teacher_context) if file is not None)]
