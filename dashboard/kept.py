"""What a page came to, for whoever asks the same while nothing has changed: ten viewers cost one look."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MOST = 16
SECONDS = 30.0
"""What a page says of the clock ("last heard of 3 min ago") may be that old."""


class Kept:
    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            at, found = self._kept.get(key, (0.0, None))
        if found is not None and time.monotonic() - at < self._seconds:
            return found
        made = make()
        with self._lock:
            self._kept[key] = time.monotonic(), made
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made
