"""The numbers of the runs that are looked at, kept for all viewers: a look reads only the steps told since the last."""

import threading
from collections import OrderedDict

from dashboard.curves import Steps
from db.queries import Reader

RUNS_KEPT = 24


class Numbers:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[int, tuple[int, dict[str, list[tuple[int, float]]]]] = OrderedDict()
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
