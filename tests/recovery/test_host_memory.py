"""Freed memory goes back to the system."""

import subprocess
import sys

import pytest
import torch

from recovery import host_memory
from recovery.host_memory import MemoryReturn

# Freed pieces below a piece in use: without help, glibc keeps them.
KEPT_BY_THE_ALLOCATOR = """
import torch
from recovery import host_memory
host_memory.GROWTH = 2**24
memory = host_memory.MemoryReturn()
memory.after_step(torch.device("cpu"))
pieces = [torch.ones(2**14) for _ in range(4000)]
last = torch.ones(2**14)
del pieces
before = host_memory.resident_bytes()
memory.after_step(torch.device("cpu"))
print((before - host_memory.resident_bytes()) // 2**20)
"""


@pytest.mark.skipif(host_memory._malloc_trim() is None, reason="the allocator is not glibc's")
def test_freed_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT_BY_THE_ALLOCATOR], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 150


def test_other_devices_are_left_alone() -> None:
    memory = MemoryReturn()
    memory.after_step(torch.device("meta"))
    assert memory.resident == 0
