"""The numbers of the runs that are looked at, kept for all viewers: a look reads only the steps told since the last."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

from dashboard.ui.training_curves import Steps
from db.queries import Reader
from db.views import Run

RUNS_KEPT = 24


class Numbers:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[int, tuple[int, dict[str, list[tuple[int, float]]]]] = OrderedDict()
        self._worked: dict[tuple[int, datetime | None], float | None] = {}
        self._lock = threading.Lock()

    def of(self, run: int) -> dict[str, Steps]:
        """By name, the (step, value) pairs of a run."""
        with self._lock:
            last, numbers = self._kept.pop(run, (-1, {}))
            for point in self._reader.points(run, after=last):
                numbers.setdefault(point.name, []).append((point.step, point.value))
                last = point.step
            self._kept[run] = last, numbers
            while len(self._kept) > RUNS_KEPT:
                self._kept.popitem(last=False)
            return {name: list(told) for name, told in numbers.items()}

    def worked(self, runs: Iterable[Run]) -> dict[int, float]:
        """By run that has ended, the seconds its steps and measurements took; read once, until it goes on again."""
        ended = {run.id: (run.id, run.finished_at) for run in runs if run.finished_at}
        with self._lock:
            if unread := [run for run, when in ended.items() if when not in self._worked]:
                told = self._reader.busy_seconds(unread)
                self._worked |= {ended[run]: told.get(run) for run in unread}
            known = {run: self._worked[when] for run, when in ended.items()}
        return {run: seconds for run, seconds in known.items() if seconds is not None}
