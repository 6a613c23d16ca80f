"""Memory that C's allocator keeps between uses.

glibc gives every large piece back to the system when it is freed, and the next one is cleared page by page: on a
virtual machine that took more than half of a training step (docs/log.md). So freed pieces are kept here. But steps
differ in shape, so what is kept would grow far beyond what is in use; it is given back when it has grown by GROWTH.
"""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

GROWTH = 2 * 2**30  # bytes; returning memory after every step of a small model would cost a fifth of its time
LARGEST_KEPT = 2**30  # bytes of one piece
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h


@cache
def keep_freed_memory() -> None:
    """Let the allocator reuse large pieces; does nothing where it is not glibc's."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    if not mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT):
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the most that older versions accept


@dataclass
class MemoryReturn:
    """Gives freed memory back to the system, after a step on a CPU in which the process has grown a lot.

    Does nothing where the allocator is not glibc's."""

    resident: int = 0  # after the first step, and after the first one since memory was given back

    def after_step(self, device: torch.device) -> None:
        trim = _malloc_trim()
        if device.type != "cpu" or trim is None:
            return
        self.resident = self.resident or resident_bytes()
        if resident_bytes() > self.resident + GROWTH:
            trim(0)
            self.resident = 0  # the next step takes what it needs anew: growth counts from there


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@cache
def _malloc_trim() -> Any:
    """glibc's function; None elsewhere."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
