"""Public test data from the folder RECOVER_TEST_DATA. Tests that need it are skipped if it is missing."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("RECOVER_TEST_DATA", "/nowhere"))
IFEVAL = FOLDER / "ifeval" / "input_data.jsonl"

needs_ifeval = pytest.mark.skipif(not IFEVAL.is_file(), reason="RECOVER_TEST_DATA has no ifeval/input_data.jsonl")

needs_gsm8k = pytest.mark.skipif(
    not (FOLDER / "gsm8k" / "test.jsonl").is_file(), reason="RECOVER_TEST_DATA has no gsm8k/test.jsonl"
)
