"""What viewers share: rendered pages, and the metrics of recently viewed runs."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from dashboard.ui.charts.runs import Series
from db.queries import Reader
from db.tables import Run

MAX_ENTRIES = 16
MAX_AGE = 30.0  # seconds


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: tuple[float, Any] | None = None  # with the time it was computed at


class ViewCache:
    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the value of a key. The first caller computes it and others wait; other keys are not blocked."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.value is None or time.monotonic() - entry.value[0] >= MAX_AGE:
                value = compute()  # the time is taken afterwards: a slow page would be old when it is ready
                entry.value = time.monotonic(), value
            return entry.value[1]


MAX_RUNS = 24


class RunMetrics:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._series: OrderedDict[tuple[int, str, int], tuple[int, dict[str, dict[int, float]]]] = OrderedDict()
        self._seconds: dict[tuple[int, datetime | None], float | None] = {}
        self._lock = threading.Lock()

    def series(self, run: Run) -> dict[str, Series]:
        """The (step, value) pairs of a run, by metric. A resumed run, of another process, may repeat steps."""
        key = run.id, run.host, run.pid
        with self._lock:
            last_step, series = self._series.pop(key, (-1, {}))
            if last_step > (self._reader.last_step(run.id) or 0):  # steps were discarded
                last_step, series = -1, {}
            for point in self._reader.points(run.id, after=last_step - 1):  # more of the last step may have come since
                series.setdefault(point.name, {})[point.step] = point.value
                last_step = point.step
            self._series[key] = last_step, series
            while len(self._series) > MAX_RUNS:
                self._series.popitem(last=False)
            return {name: list(points.items()) for name, points in series.items()}

    def work_seconds(self, runs: Iterable[Run]) -> dict[int, float]:
        """The seconds that steps and evaluations of each finished run took; read again only after a resume."""
        finished = {run.id: (run.id, run.finished_at) for run in runs if run.finished_at}
        with self._lock:
            if unread := [run for run, key in finished.items() if key not in self._seconds]:
                seconds = self._reader.busy_seconds(unread)
                self._seconds |= {finished[run]: seconds.get(run) for run in unread}
            by_run = {run: self._seconds[key] for run, key in finished.items()}
        return {run: seconds for run, seconds in by_run.items() if seconds is not None}
