"""The bytes that this process holds on its heap, and the most that it held after any operation of torch."""

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")
LARGE = 2**15  # bytes of a result; asking for the heap takes longer than most smaller operations


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ["arena", "a", "b", "c", "mapped", "d", "e", "used", "f", "g"]]


def can_measure() -> bool:
    """Whether C's library is glibc 2.33 or newer."""
    try:
        return bool(_mallinfo()())
    except (AttributeError, OSError):
        return False


def heap_bytes() -> int:
    """What this process has allocated and not freed, in all its threads."""
    state = _mallinfo()()
    return int(state.used + state.mapped)


def measured(run: Callable[[], T]) -> tuple[T, int, int]:
    """(its result, the highest heap, the heap after it)."""
    with _HeapPeak() as peak:
        result = run()
    gc.collect()
    return result, peak.bytes, heap_bytes()


class _HeapPeak(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # then the operations on its part come here
        result = operation(*args, **kwargs or {})
        results = result if isinstance(result, tuple | list) else [result]
        if any(isinstance(tensor, torch.Tensor) and tensor.nbytes >= LARGE for tensor in results):
            self.bytes = max(self.bytes, heap_bytes())
        return result


@cache
def _mallinfo() -> Any:
    function = ctypes.CDLL(None).mallinfo2
    function.restype = _Mallinfo
    return function
