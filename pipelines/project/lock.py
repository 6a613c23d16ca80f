"""The command that runs in a project, how far it is, and those that were interrupted.

Only one command at a time may change a project: a file lock ensures it in the folder, a lock of the server where the
record is PostgreSQL, which copies of the folder may share. The system releases both when the process ends."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from db import advisory_lock
from db.advisory_lock import LockHolder
from db.tables import DONE, TOTAL, Run
from pipelines.log import STEPS, log, no_silence, seconds_left
from pipelines.project.locations import no_empty_folders
from pipelines.project.project import Project
from pipelines.project.runs import RUN_NAMES, JobKey, runs_of_command
from pipelines.storage import write_atomic
from recovery.errors import RecoverError, first_line
from recovery.progress import Update, also_listen

HOLDER_FILE = "lock.json"

PUBLISH_SECONDS = 5.0  # between two reports
LOOK_SECONDS = 0.5  # for which others may hold the lock, such as a dashboard that looks whether a command was killed


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
                raise AlreadyRunning(_holder_elsewhere(project))
            yield


def running_command(project: Project) -> LockHolder | None:
    """The command that is running in the project, in this folder or in a copy of it."""
    return lock_holder(project.home) or _holder_elsewhere(project)


def current_run(project: Project) -> Run | None:
    """The run of the running command; None between two of them."""
    holder = running_command(project)
    if holder is None:
        return None
    process = (holder.host, holder.pid)  # a run of a killed process may still be recorded as running
    runs = runs_of_command(project, holder.job) if holder.job else project.reader.runs(project.id)
    return next((run for run in runs if run.status == "running" and (run.host, run.pid) == process), None)


def mark_ended(project: Project, runs: Iterable[Run]) -> list[Run]:
    """With those of this machine whose process is gone as stale, before their heartbeat tells it.

    The process of another container may have no number here, but it holds the project."""
    holder, here, marked = running_command(project), socket.gethostname(), list(runs)
    for run in marked:
        holds = holder is not None and (holder.host, holder.pid) == (run.host, run.pid)
        run.stale |= run.status == "running" and run.host == here and not holds and not psutil.pid_exists(run.pid)
    return marked


def _holder_elsewhere(project: Project) -> LockHolder | None:
    return advisory_lock.lock_holder(project.engine, project.name) if project.is_shared else None


@contextmanager
def project_lock(home: Path, command: str) -> Iterator[None]:
    """Hold the lock; raises RecoverError, with the command that holds it, if it is taken.

    Folders created for the lock are removed with it if nothing was stored in them: no refused command leaves them."""
    lock = FileLock(home / "lock")
    with no_empty_folders(home) as missing:
        try:
            home.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=LOOK_SECONDS)
        except Timeout:
            raise AlreadyRunning(_stored_holder(home)) from None
        except OSError as error:
            problem = f"Cannot write to {home} ({error.strerror})."
            raise RecoverError(f"{problem} Name another folder with --project.") from error
        try:
            _store(home, LockHolder(command, os.getpid(), socket.gethostname()))
            yield
        finally:
            (home / HOLDER_FILE).unlink(missing_ok=True)
            with suppress(OSError):  # a folder may have been used meanwhile
                if missing and os.listdir(home) == ["lock"]:
                    (home / "lock").unlink()
            lock.release()


class AlreadyRunning(RecoverError):
    def __init__(self, holder: LockHolder | None) -> None:
        super().__init__(
            f"Another command is running in this project{f': {holder}' if holder else ''}. Wait until it ends, or stop "
            "it (Ctrl-C, or `recover cancel` while it trains)."
        )


def lock_holder(home: Path) -> LockHolder | None:
    holder = _stored_holder(home)
    if holder is None:
        return None
    try:
        with FileLock(home / "lock", timeout=0):  # it was killed, and nobody else must find it here
            (home / HOLDER_FILE).unlink(missing_ok=True)
    except Timeout:
        return holder
    except OSError:  # a folder that this user may not write to
        pass
    return None


def update_holder(home: Path, **changes: Any) -> None:
    """Store which job the holder of the lock runs, or how far it is; without a holder, nothing is stored."""
    try:
        if holder := _stored_holder(home):
            _store(home, replace(holder, **changes))
    except OSError as error:  # such as a full disk: no computation ends for that
        _warn_that_nothing_is_stored(home, first_line(error))


@cache
def _warn_that_nothing_is_stored(home: Path, reason: str) -> None:
    log.warning(f"Cannot store the progress in {home} ({reason}); status and dashboard will not show it")


def _store(home: Path, holder: LockHolder) -> None:
    write_atomic(home / HOLDER_FILE, [json.dumps(asdict(holder))])


def _stored_holder(home: Path) -> LockHolder | None:
    try:
        return LockHolder(**json.loads((home / HOLDER_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def command_line() -> str:
    """The command of this process, for the message that others get while it holds the lock."""
    return " ".join(["recover", *sys.argv[1:]])[:120]


@contextmanager
def published_progress(project: Project) -> Iterator[None]:
    progress = _JobProgress(project)
    with no_silence(lambda: f"  still {progress.stage}"), also_listen(progress.listener):
        yield


@dataclass
class _JobProgress:
    project: Project
    _training: int | None = None  # the run whose steps are counted; replies within them are not
    _published_at: float = 0.0

    @property
    def stage(self) -> str:
        return RUN_NAMES[self.project.open_run[1]] if self.project.open_run else "preparing"

    def listener(self, units: str, total: int) -> Update:
        run, kind = self.project.open_run or (None, None)
        if run is not None and run == self._training and units != STEPS:
            return lambda done: None
        if units == STEPS:
            self._training = run
        began_at, before = time.monotonic(), None

        def update(done: int) -> None:
            nonlocal before
            now = time.monotonic()
            if before is None:  # what an interrupted training had done
                before = done - 1 if units == STEPS else 0
            if now - self._published_at < PUBLISH_SECONDS:
                return
            self._published_at = now
            values = {"stage": self.stage, "units": units, "done": done, "total": total}
            left = seconds_left(done - before, total - before, now - began_at)
            update_holder(self.project.home, progress=values | {"seconds_left": left and round(left)})
            if run is not None and kind == "eval":  # a training reports its steps itself
                self.project.tracker.step(run, 0, {DONE: done, TOTAL: total})

        return update


def job_files(home: Path) -> list[Path]:
    times = {}
    for file in (home / "jobs").glob("*.json"):
        with suppress(FileNotFoundError):  # its command has just ended
            times[file] = file.stat().st_mtime_ns
    return sorted(times, key=lambda file: times[file])


@contextmanager
def readable_job(file: Path) -> Iterator[None]:
    """Whatever is wrong with a job's file becomes one sentence."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecoverError) as error:
        raise RecoverError(
            f"The job in {file} cannot be read ({first_line(error)}). Delete the file and run the command again."
        ) from error


def interrupted_jobs(home: Path, running_job: str | None) -> list[JobKey]:
    """The unfinished jobs other than the running one, the oldest first."""
    jobs = []
    for file in job_files(home):
        if file.stem != running_job:
            # Without `pipelines.job`, whose model libraries would slow `recover status`.
            with suppress(FileNotFoundError), readable_job(file):
                values = json.loads(file.read_text(encoding="utf-8"))
                jobs.append(JobKey(file.stem, str(values["command"]), values.get("current")))
    return jobs
