"""Memory that C's allocator keeps: steps of training differ in shape, so it grows far beyond what is in use."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

GROWTH = 2 * 2**30  # bytes; returning memory after every step of a small model would cost a fifth of its time


@dataclass
class MemoryReturn:
    """Gives freed memory back to the system, after a step on a CPU in which the process has grown a lot.

    Does nothing where the allocator is not glibc's."""

    resident: int = 0  # after it was last given back

    def after_step(self, device: torch.device) -> None:
        trim = _malloc_trim()
        if device.type != "cpu" or trim is None:
            return
        self.resident = self.resident or resident_bytes()
        if resident_bytes() > self.resident + GROWTH:
            trim(0)
            self.resident = resident_bytes()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@cache
def _malloc_trim() -> Any:
    """glibc's function; None elsewhere."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
