"""What a page came to, for whoever asks the same while nothing has changed: ten viewers cost one look."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MOST = 16
SECONDS = 30.0
"""What a page says of the clock ("last heard of 3 min ago") may be that old."""


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: tuple[float, Any] | None = None


class Kept:
    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: str, make: Callable[[], Any]) -> Any:
        """Who comes first makes it, and the others wait for that; who asks for something else waits for nobody."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.made is None or time.monotonic() - entry.made[0] >= self._seconds:
                entry.made = time.monotonic(), make()
            return entry.made[1]
