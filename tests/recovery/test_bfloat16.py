from pathlib import Path

import pytest
import torch

from recovery.hardware import has_bfloat16


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux lists CPU features")
def test_a_cpu_has_bfloat16_if_it_lists_units_for_it() -> None:
    listed = set(Path("/proc/cpuinfo").read_text().split())
    assert has_bfloat16("cpu") == bool({"amx_bf16", "avx512_bf16"} & listed)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is checked first")
def test_without_a_gpu_the_cpu_decides() -> None:
    assert has_bfloat16() == has_bfloat16("cpu")
