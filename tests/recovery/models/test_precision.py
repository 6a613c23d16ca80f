from pathlib import Path

import pytest
import torch

from recovery.models.precision import has_bfloat16


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux lists what a processor has")
def test_a_processor_is_believed_where_it_lists_units_for_bfloat16() -> None:
    listed = set(Path("/proc/cpuinfo").read_text().split())
    assert has_bfloat16("cpu") == bool({"amx_bf16", "avx512_bf16"} & listed)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a graphics card is asked first")
def test_with_no_graphics_card_the_processor_decides() -> None:
    assert has_bfloat16() == has_bfloat16("cpu")
