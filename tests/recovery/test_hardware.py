"""Freed memory goes back to the system, and bfloat16 is for processors with units for it."""

import subprocess
import sys

import pytest
import torch

from recovery import hardware
from recovery.hardware import has_bfloat16

# Freed pieces below a piece in use: without help, glibc keeps them.
KEPT_BY_THE_ALLOCATOR = """
import torch
from recovery import hardware
hardware.GROWTH = 2**24
memory = hardware.MemoryReturn(torch.device("cpu"))
memory.after_step()
pieces = [torch.ones(2**14) for _ in range(4000)]
last = torch.ones(2**14)
del pieces
before = hardware.resident_bytes()
memory.after_step()
print((before - hardware.resident_bytes()) // 2**20)
"""
# Freeing and allocating a large piece again clears its pages again, unless the allocator has kept it.
NEW_PAGES = """
import resource, sys
import torch
from recovery.hardware import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
torch.ones(64 * 2**18)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for megabytes in range(63, 50, -1):  # each fits into the place of the one before
    torch.ones(megabytes * 2**18)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(hardware._c_function("malloc_trim") is None, reason="the allocator is not glibc's")
def test_freed_memory_is_used_again() -> None:
    def new_pages(mode: str) -> int:
        command = [sys.executable, "-c", NEW_PAGES, mode]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    freed_at_once = new_pages("default")
    assert freed_at_once > 100
    assert new_pages("keep") < freed_at_once / 10


@pytest.mark.skipif(hardware._c_function("malloc_trim") is None, reason="the allocator is not glibc's")
def test_freed_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT_BY_THE_ALLOCATOR], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 150


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="older versions of torch do not list units")
def test_a_cpu_has_bfloat16_if_torch_finds_units_for_it() -> None:
    found = torch.cpu.get_capabilities()
    assert has_bfloat16("cpu") == bool(found.get("amx_bf16") or found.get("avx512_bf16"))
