"""Freed memory goes back to the system, and bfloat16 is for processors with units for it."""

import json
import subprocess
import sys

import pytest
import torch

from recovery import hardware
from recovery.hardware import has_bfloat16

MEASUREMENTS = """
import json, resource
import torch
from recovery import hardware

# Freed pieces below a piece in use: without help, glibc keeps them.
hardware.GROWTH = 2**24
memory = hardware.MemoryReturn(torch.device("cpu"))
memory.after_step()
pieces = [torch.ones(2**14) for _ in range(4000)]
last = torch.ones(2**14)
del pieces
before = hardware.resident_bytes()
memory.after_step()
given_back = (before - hardware.resident_bytes()) // 2**20

# Freeing and allocating a large piece again clears its pages again, unless the allocator has kept it.
def new_pages():
    torch.ones(64 * 2**18)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for megabytes in range(63, 50, -1):  # each fits into the place of the one before
        torch.ones(megabytes * 2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

freed_at_once = new_pages()
hardware.keep_freed_memory()
print(json.dumps({"given back": given_back, "freed at once": freed_at_once, "kept": new_pages()}))
"""


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    """Of a process whose allocator nothing else has used."""
    if hardware._c_function("malloc_trim") is None:
        pytest.skip("the allocator is not glibc's")
    done = subprocess.run([sys.executable, "-c", MEASUREMENTS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_freed_memory_is_used_again(measured: dict[str, int]) -> None:
    assert measured["freed at once"] > 100
    assert measured["kept"] < measured["freed at once"] / 10


def test_freed_memory_is_given_back(measured: dict[str, int]) -> None:
    assert measured["given back"] > 150


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="older versions of torch do not list units")
def test_a_cpu_has_bfloat16_if_torch_finds_units_for_it() -> None:
    found = torch.cpu.get_capabilities()
    assert has_bfloat16("cpu") == bool(found.get("amx_bf16") or found.get("avx512_bf16"))
