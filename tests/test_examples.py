"""The examples run, with two steps each, and `recover check` reads what they write."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.command_line import recover

ROOT = Path(__file__).parents[1]
needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed (extra bench)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "data"),
    [
        ("raw_text", "my-finetune-data/docs"),
        pytest.param("instructions", "my-finetune-data.jsonl", marks=needs_trl),
        pytest.param("preferences", "my-finetune-data.jsonl", marks=needs_trl),
    ],
)
def test_an_example_writes_a_model_that_check_reads(tmp_path: Path, script: str, data: str) -> None:
    subprocess.run(
        [sys.executable, ROOT / "examples" / f"{script}.py", "--to", "my-finetune", "--steps", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    completed = recover(tmp_path, "check", "my-finetune", "--docs", data, "--limit", "8")
    assert completed.exit_code in (0, 3, 4), completed.stderr
    assert {row["suite"] for row in completed.data["forgotten"]} == {"behaviour", "retention"}
    assert completed.data["learned"]
