"""The metrics of recently viewed runs, shared by all viewers. Only steps logged since the last read are fetched."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

from dashboard.ui.charts.training_curves import Series
from db.queries import Reader
from db.tables import Run

MAX_RUNS = 24


class RunMetrics:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._series: OrderedDict[int, tuple[int, dict[str, list[tuple[int, float]]]]] = OrderedDict()
        self._seconds: dict[tuple[int, datetime | None], float | None] = {}
        self._lock = threading.Lock()

    def series(self, run: int) -> dict[str, Series]:
        """The (step, value) pairs of a run, by metric."""
        with self._lock:
            last_step, series = self._series.pop(run, (-1, {}))
            for point in self._reader.points(run, after=last_step):
                series.setdefault(point.name, []).append((point.step, point.value))
                last_step = point.step
            self._series[run] = last_step, series
            while len(self._series) > MAX_RUNS:
                self._series.popitem(last=False)
            return {name: list(points) for name, points in series.items()}

    def work_seconds(self, runs: Iterable[Run]) -> dict[int, float]:
        """The seconds that steps and evaluations of each finished run took; read again only after a resume."""
        finished = {run.id: (run.id, run.finished_at) for run in runs if run.finished_at}
        with self._lock:
            if unread := [run for run, key in finished.items() if key not in self._seconds]:
                seconds = self._reader.busy_seconds(unread)
                self._seconds |= {finished[run]: seconds.get(run) for run in unread}
            by_run = {run: self._seconds[key] for run, key in finished.items()}
        return {run: seconds for run, seconds in by_run.items() if seconds is not None}
