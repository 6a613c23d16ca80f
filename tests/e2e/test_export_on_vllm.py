import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from recovery.engines import Sampling
from recovery.lab import make_world
from recovery.models.students import load_student
from tests.e2e.command_line import recover


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_loads_the_exported_model(tmp_path: Path) -> None:
    if find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
        pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
    from recovery.engines.vllm import VllmEngine

    make_world(51, size="small").write(tmp_path)
    settings = ["--mix", "documents", "--set", "midtrain.max_steps=2"]
    recover(tmp_path, "midtrain", "--docs", "docs", *settings).ended(0)
    recover(tmp_path, "export", "cycle:1/midtrained", "--to", "exported").ended(0)
    student = load_student(str(tmp_path / "exported"), frozen=True)
    (reply,) = VllmEngine(student).generate([student.chat.prompt("Hello!")], Sampling(30, temperature=0.0))
    assert student.chat.text(reply.tokens).strip()
