"""Only one command at a time may change a project: a file lock ensures it in the folder, a lock of the server where the
record is PostgreSQL, which copies of the folder may share."""

from collections.abc import Iterator
from contextlib import contextmanager

from db import advisory_lock
from pipelines.project.lock import LockHolder, already_running, command_line, lock_holder, project_lock
from pipelines.project.project import Project


@contextmanager
def command_lock(project: Project) -> Iterator[None]:
    """Hold the project; raises RecoverError, with the command that holds it, if another does."""
    command = command_line()
    with project_lock(project.home, command):
        if not project.is_shared:
            yield
            return
        with advisory_lock.advisory_lock(project.engine, project.name, command) as is_ours:
            if not is_ours:
                raise already_running(_holder_elsewhere(project))
            yield


def running_command(project: Project) -> LockHolder | None:
    """The command that is running in the project, in this folder or in a copy of it."""
    return lock_holder(project.home) or _holder_elsewhere(project)


def _holder_elsewhere(project: Project) -> LockHolder | None:
    holder = advisory_lock.lock_holder(project.engine, project.name) if project.is_shared else None
    return LockHolder(holder.command, holder.pid, holder.host) if holder else None
