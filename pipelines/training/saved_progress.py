"""The saved state of an unfinished run: in the project's folder, and from time to time in its store, from which another
machine can go on."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from db.errors import RecordError
from db.leases import LeaseLost
from pipelines.log import log
from pipelines.project.project import Project
from pipelines.storage.atomic_files import write_atomic
from recovery.errors import RecoverError, first_line
from recovery.resume_state import discard_progress, has_progress


def progress_folder(project: Project, run: int) -> Path:
    return project.home / "progress" / f"run-{run:04d}"


def has_started(project: Project, run: int) -> bool:
    """Whether the run has a saved state or a checkpoint to go on from."""
    return has_progress(progress_folder(project, run)) or project.reader.run_checkpoint(run) is not None


def fetch_progress(project: Project, run: int) -> None:
    """Fetch the last state that another machine has sent, unless the one here is of the same lease or a later one."""
    if project.store is None or project.reader.run_checkpoint(run) is not None:
        return
    folder, sent = progress_folder(project, run), project.store.progress_version(f"run-{run:04d}")
    if sent is None or (has_progress(folder) and sent[0] <= _token(project, run)):
        return
    discard_progress(folder)
    project.store.fetch_progress(folder)


def _token_file(project: Project, run: int) -> Path:
    return project.home / "progress-leases" / f"run-{run:04d}"


def _token(project: Project, run: int) -> int:
    """Of the lease under which the state in this folder was saved."""
    with suppress(OSError, ValueError):
        return int(_token_file(project, run).read_text(encoding="utf-8"))
    return 0


def delete_progress(project: Project, run: int) -> None:
    folder = progress_folder(project, run)
    discard_progress(folder)
    _token_file(project, run).unlink(missing_ok=True)
    if project.store:
        project.store.delete_progress(folder.name)


@dataclass
class ProgressSender:
    """Sends the saved state of a run to the store, if there is one, every so many minutes."""

    project: Project
    run: int
    minutes: float
    _last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if lease := self.project.tracker.lease:
            file = _token_file(self.project, self.run)
            file.parent.mkdir(exist_ok=True)
            write_atomic(file, [str(lease.token)])

    def send(self, step: int, *, at_once: bool) -> None:
        """Send it if it is due. A store or a record out of reach does not end the training."""
        store, tracker = self.project.store, self.project.tracker
        if store is None or not (at_once or time.monotonic() - self._last >= 60 * self.minutes):
            return
        version = (tracker.lease.token if tracker.lease else 0, step)
        try:
            store.send_progress(progress_folder(self.project, self.run), version, tracker.check_lease)
        except LeaseLost:
            raise
        except (RecoverError, RecordError) as error:
            log.warning(f"Other machines could not go on from step {step + 1}: {first_line(error)}")
        self._last = time.monotonic()
