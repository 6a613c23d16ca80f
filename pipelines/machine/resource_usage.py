"""What this process takes of its machine."""

import os
import resource
import sys
import time
from pathlib import Path

import torch

STATM = Path("/proc/self/statm")


class Meter:
    """Of the processor, what was taken since the last look; of memory, what is held now."""

    def __init__(self) -> None:
        self._at, self._spent = time.monotonic(), _cpu_seconds()

    def look(self) -> dict[str, float]:
        at, spent = time.monotonic(), _cpu_seconds()
        passed, taken = at - self._at, spent - self._spent
        self._at, self._spent = at, spent
        return _held() | {"cpu_percent": 100 * taken / max(passed, 1e-3), "load": os.getloadavg()[0]}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _held() -> dict[str, float]:
    if STATM.exists():
        held = int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    else:  # the most that it ever held is all that there is to be had
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = {"rss_bytes": float(held)}
    if torch.cuda.is_available():
        found |= {
            "gpu_bytes": float(torch.cuda.max_memory_allocated()),
            "gpu_total": float(torch.cuda.mem_get_info()[1]),
        }
    return found
