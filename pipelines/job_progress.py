"""How far the running job is, for `recover status` and the dashboard: what it computes just now, and at which speed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from db.tables import DONE, TOTAL
from pipelines.progress import STEPS, no_silence, seconds_left
from pipelines.project.lock import store_progress
from pipelines.project.project import Project
from pipelines.project.runs import RUN_NAMES
from recovery.progress import Update, also_listen

PUBLISH_SECONDS = 5.0  # between two reports


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
        """A listener for `recovery.progress`."""
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
            store_progress(self.project.home, values | {"seconds_left": left and round(left)})
            if run is not None and kind == "eval":  # a training reports its steps itself
                self.project.tracker.step(run, 0, {DONE: done, TOTAL: total})

        return update
