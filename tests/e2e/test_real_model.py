"""A cycle on a real chat model through the command line: few steps, few items, every stage."""

from pathlib import Path

import pytest

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import make_world
from recovery.models.students import load_student
from tests.e2e.command_line import recover
from tests.pipelines.options import SMALL_DISTILLATION, set_options

SHORT = set_options(
    *("midtrain.max_steps=3", "midtrain.rows=2", "midtrain.generated_texts=16", "distill.if_needed=false"),
    *("distill.max_steps=2", "distill.max_new_tokens=48"),
    "distill.learning_rate=1e-4",  # at the default rate two steps of four rows break the model
)


@pytest.mark.release
def test_a_cycle_on_a_real_model(smollm2: Path, tmp_path: Path) -> None:
    make_world(7, size="quick").write(tmp_path / "world")
    files = ("--docs", "world/docs", "--questions", "world/questions.jsonl")
    options = ["--limit", 8, "--engine", "transformers", *SMALL_DISTILLATION, *SHORT]
    completed = recover(tmp_path, "cycle", "--base", smollm2, *files, *options).ended(0, 3)  # few steps teach nothing
    assert "Dequantising" in completed.stderr
    for model in ("clean", "damaged", "recovered"):
        assert set(completed.data[model]) == {"behaviour", "knowledge", "earlier", "retention"}
        assert completed.data[model]["behaviour"] is not None
    recovered = load_student(completed.data["path"], frozen=True)
    prompt = recovered.chat.prompt("What is the capital of France? Answer with one word.")
    [reply] = TransformersEngine(recovered).generate([prompt], Sampling(24, temperature=0))
    assert "Paris" in recovered.chat.text(reply.tokens)
    recover(tmp_path, "status").ended(0)
