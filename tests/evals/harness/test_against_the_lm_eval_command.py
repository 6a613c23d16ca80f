"""The `lm_eval` command itself on the shipped base, and ours: the same texts, the same numbers.

Where two tokens are as good as equally likely, float32 sums in another order may choose the other one: such a reply may
differ, is told by the distance of the two, and is all that may."""

import importlib.util
import os

import pytest

from benchmarks.speed.lm_eval import Comparison, main
from tests.evals.data import FOLDER, IFEVAL, needs_gsm8k, needs_ifeval

DICE = {"1122", "1129"}  # public prompts that name no letter: their checker invents one, seeded on our side alone
BATCH = ["--batch-size", "16"]


def compared(task: str, *how: str) -> Comparison:
    return main(["--tasks", task, *BATCH, *how])[task]


def agrees(found: Comparison, items: int) -> None:
    assert found.items == items
    others = [d for d in found.differences if not d.is_a_tie and d.key not in DICE]
    assert others == []
    ties = [d for d in found.differences if d.is_a_tie]
    assert len(ties) <= items / 20
    if not found.differences:
        for name, (ours, theirs) in found.numbers.items():
            assert ours == pytest.approx(theirs, abs=1e-4), name


@pytest.mark.slow
def test_instructions_of_the_lab() -> None:
    agrees(compared("ifeval", "--items", "50"), 50)


@pytest.mark.slow
@needs_ifeval
def test_public_instructions() -> None:
    agrees(compared("ifeval", "--items", "100", "--ifeval", str(IFEVAL)), 100)


@pytest.mark.slow
@needs_gsm8k
def test_gsm8k_with_both_filters() -> None:
    found = compared("gsm8k", "--items", "50", "--gsm8k", str(FOLDER / "gsm8k"))
    assert {name.partition(",")[2] for name in found.numbers} == {"strict-match", "flexible-extract"}
    agrees(found, 50)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["mc1", "mc2"])
def test_multiple_choice(task: str) -> None:
    agrees(compared(task, "--items", "50"), 50)


@pytest.fixture(scope="module")
def on_vllm() -> dict[str, Comparison]:
    """All in one go: an engine of vLLM is not started again and again in one process."""
    if importlib.util.find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
        pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
    tasks, how = "ifeval,mc1,mc2", ["--engine", "vllm", "--items", "50", *BATCH]
    if (FOLDER / "gsm8k" / "test.jsonl").is_file():
        tasks, how = f"{tasks},gsm8k", [*how, "--gsm8k", str(FOLDER / "gsm8k")]
    return main(["--tasks", tasks, *how])


@pytest.mark.vllm
@pytest.mark.parametrize("task", ["ifeval", "mc1", "mc2", "gsm8k"])
def test_on_vllm(on_vllm: dict[str, Comparison], task: str) -> None:
    if task not in on_vllm:
        pytest.skip("RECOVER_TEST_DATA has no gsm8k/test.jsonl")
    agrees(on_vllm[task], 50)
