"""A cache of rendered pages: viewers who ask for the same page share one rendering."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_ENTRIES = 16
MAX_AGE = 30.0  # seconds; times on a page such as "3 min ago" may be that old


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: tuple[float, Any] | None = None  # with the time it was computed at


class ViewCache:
    def __init__(self, max_entries: int = MAX_ENTRIES, max_age: float = MAX_AGE) -> None:
        self._max_entries, self._max_age = max_entries, max_age
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the value of a key. The first caller computes it and others wait; other keys are not blocked."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.value is None or time.monotonic() - entry.value[0] >= self._max_age:
                entry.value = time.monotonic(), compute()
            return entry.value[1]
