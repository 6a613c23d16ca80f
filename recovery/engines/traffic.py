"""What is exchanged with servers, counted for the whole process: bytes of each server, and seconds waited for them."""

from collections import Counter
from threading import Lock

WAITING = "waiting"

_lock = Lock()
_counts: Counter[str] = Counter()


def count_bytes(server: str, sent: int, received: int) -> None:
    with _lock:
        _counts[f"{server}/sent_bytes"] += sent
        _counts[f"{server}/received_bytes"] += received


def count_waiting(seconds: float) -> None:
    with _lock:
        _counts[WAITING] += seconds  # type: ignore[assignment]


class TrafficMeter:
    """Reads what was exchanged since the last reading."""

    def __init__(self) -> None:
        self._before = _snapshot()

    def read(self) -> tuple[dict[str, float], float]:
        """Bytes by server and direction, and the seconds waited."""
        before, self._before = self._before, _snapshot()
        new = {name: value - before[name] for name, value in self._before.items() if value > before[name]}
        return {name: value for name, value in new.items() if name != WAITING}, new.get(WAITING, 0.0)


def _snapshot() -> dict[str, float]:
    with _lock:
        return Counter(_counts)  # type: ignore[return-value]
