"""Only one command at a time may change a project: a file lock ensures it in the folder, a lease in a shared record.

A record in an SQLite file is on one machine, where the lock is enough.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from db.views import Lease
from pipelines.project.lock import LockHolder, command_line, lock_holder, project_lock, store_job, store_progress
from pipelines.project.project import Project


@contextmanager
def command_lock(project: Project) -> Iterator[None]:
    """Hold the project; raises RecoverError or RecordError, with the command that holds it, if another does."""
    command = command_line()
    with project_lock(project.home, command):
        project.locked_by = command
        try:
            if (
                project.is_shared and project.row is not None
            ):  # where there is none, `Project.id` creates it and takes the lease
                project.take_lease(project.id)
            if project.store:
                project.store.fetch_jobs()
                project.store.fetch_inputs()
            yield
        finally:
            project.locked_by = None
            if project.is_shared:
                project.tracker.release()


def show_job(project: Project, job: str) -> None:
    """Show others which job the command runs."""
    store_job(project.home, job)
    if lease := project.tracker.lease:
        lease.job = job


def show_progress(project: Project, progress: dict[str, Any]) -> None:
    """Show others how far the command is; raises LeaseLost if another machine has taken over."""
    store_progress(project.home, progress)
    if lease := project.tracker.lease:
        lease.raise_if_lost()
        lease.progress = progress


def leases(project: Project) -> list[Lease]:
    """The leases of all projects of the record. Where nobody holds this folder's lock, its last lease is of a dead
    command, even before it expires."""
    listed = project.reader.leases() if project.is_shared else []
    if not listed or lock_holder(project.home):
        return listed
    last = (project.id, project.last_lease)
    return [replace(lease, alive=lease.alive and (lease.project_id, lease.token) != last) for lease in listed]


def running_command(project: Project) -> LockHolder | None:
    """The command that is running in the project, here or on another machine."""
    if holder := lock_holder(project.home):
        return holder
    own = (lease for lease in leases(project) if lease.project_id == project.id and lease.alive)
    return next((LockHolder(one.command, one.pid, one.host, one.job, one.progress) for one in own), None)
