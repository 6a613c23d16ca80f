"""What the machine does for a training: bfloat16, and memory that C's allocator keeps between uses.

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
    mallopt = _c_function("mallopt")
    if mallopt is None:
        return
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    if not mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT):
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the most that older versions accept


def give_back_freed_memory(device: torch.device) -> None:
    """Of a process that computes on a CPU, to the system; does nothing where the allocator is not glibc's."""
    trim = _c_function("malloc_trim")
    if device.type == "cpu" and trim is not None:
        trim(0)


@dataclass
class MemoryReturn:
    """Gives freed memory back to the system, after a step on a CPU in which the process has grown a lot."""

    device: torch.device
    resident: int = 0  # after the first step, and after the first one since memory was given back

    def after_step(self) -> None:
        if self.device.type != "cpu" or _c_function("malloc_trim") is None:
            return
        self.resident = self.resident or resident_bytes()
        if resident_bytes() > self.resident + GROWTH:
            give_back_freed_memory(self.device)
            self.resident = 0  # the next step takes what it needs anew: growth counts from there


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@cache
def _c_function(name: str) -> Any:
    """Of glibc; None elsewhere."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


def has_bfloat16(device: str | None = None) -> bool:
    """Return whether the device (default: the GPU if there is one) multiplies in bfloat16 natively.

    Most CPUs only emulate it, at several times the cost of float32."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Only x86 units count: what mkldnn reports as supported may be emulated, two to four times slower.
    features = set(processor_field("flags").split())  # torch has a function for it from 2.13 on
    return kind == "cpu" and not features.isdisjoint(("amx_bf16", "avx512_bf16"))


@cache
def processor_field(name: str) -> str:
    """What Linux says of the first processor, such as its `model name`; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
