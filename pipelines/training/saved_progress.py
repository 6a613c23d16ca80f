"""The saved state of an unfinished run: in the project's folder, and from time to time in its store, from which another
machine can go on."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from db.errors import RecordError
from db.leases import LeaseLost
from pipelines.log import log
from pipelines.project.project import Project
from recovery.errors import RecoverError, first_line
from recovery.resume_state import (
    complete_progress,
    discard_progress,
    has_progress,
    incomplete_folder,
    progress_notes,
)


def progress_folder(project: Project, run: int) -> Path:
    return project.home / "progress" / f"run-{run:04d}"


def last_good_folder(project: Project, run: int) -> Path:
    """The state at the start, or at the last probe that did not end the run; without probes at the last report."""
    folder = progress_folder(project, run)
    return folder.with_name(folder.name + "-good")


def has_started(project: Project, run: int) -> bool:
    """Whether the run has a saved state or a checkpoint to go on from."""
    return has_progress(progress_folder(project, run)) or project.reader.run_checkpoint(run) is not None


def fetch_progress(project: Project, run: int) -> None:
    """Fetch the last state that another machine has sent, if none is here, or only one from before its lease.

    Of the states of one lease the one here is the last: each is saved before it is sent."""
    if project.store is None or project.reader.run_checkpoint(run) is not None:
        return
    folder = progress_folder(project, run)
    lease = progress_notes(folder).get("lease", 0) if has_progress(folder) else -1
    shutil.rmtree(incomplete_folder(folder), ignore_errors=True)
    if project.store.fetch_progress(folder.name, lease, incomplete_folder(folder)):
        complete_progress(folder)
        discard_progress(last_good_folder(project, run))  # of before the other machine went on


def lease_token(project: Project) -> int:
    """Of this command's lease; states of later leases replace those of earlier ones."""
    return project.tracker.lease.token if project.tracker.lease else 0


def delete_progress(project: Project, run: int) -> None:
    folder = progress_folder(project, run)
    discard_progress(folder)
    if project.store:
        project.store.delete_progress(folder.name)


@dataclass
class ProgressSender:
    """Sends the saved state of a run to the store, if there is one, every so many minutes."""

    project: Project
    run: int
    minutes: float
    _last: float = field(default_factory=time.monotonic)

    def send(self, step: int, *, at_once: bool) -> None:
        """Send it if it is due. A store or a record out of reach does not end the training."""
        store, tracker = self.project.store, self.project.tracker
        if store is None or not (at_once or time.monotonic() - self._last >= 60 * self.minutes):
            return
        version = (lease_token(self.project), step)
        try:
            store.send_progress(progress_folder(self.project, self.run), version, tracker.check_lease)
        except LeaseLost:
            raise
        except (RecoverError, RecordError) as error:
            log.warning(f"Other machines could not go on from step {step + 1}: {first_line(error)}")
        self._last = time.monotonic()
