"""Public data where a developer has it; what needs it is skipped elsewhere."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("RECOVER_TEST_DATA", "/nowhere"))
IFEVAL = FOLDER / "ifeval" / "input_data.jsonl"

needs_ifeval = pytest.mark.skipif(not IFEVAL.is_file(), reason="RECOVER_TEST_DATA has no ifeval/input_data.jsonl")

needs_gsm8k = pytest.mark.skipif(
    not (FOLDER / "gsm8k" / "test.jsonl").is_file(), reason="RECOVER_TEST_DATA has no gsm8k/test.jsonl"
)
