"""Memory that C's allocator keeps: steps of training differ in shape, so it grows far beyond what is in use."""

import ctypes
from functools import cache
from typing import Any

import torch


def return_freed_memory(device: torch.device) -> None:
    """Give freed pieces back to the system, after a step on a CPU; where the allocator is not glibc's, do nothing."""
    trim = _malloc_trim()
    if device.type == "cpu" and trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
