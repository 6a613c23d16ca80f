"""The `lm_eval` command on the shipped base, compared with ours: the same texts and the same numbers.

Replies may only differ where two tokens are almost equally likely (a tie), as float32 sums in another order may then
choose the other one."""

import importlib.util
import os

import pytest

from benchmarks.lm_eval import Comparison, main
from tests.evals.data import FOLDER, IFEVAL, needs_gsm8k, needs_ifeval

RANDOM_CHECKS = {"1122", "1129"}  # public prompts that name no letter: their checker draws one, seeded only by ours
BATCH = ["--batch-size", "16"]


def assert_agreement(comparison: Comparison, items: int) -> None:
    assert comparison.items == items
    unexplained = [d for d in comparison.differences if not d.is_a_tie and d.key not in RANDOM_CHECKS]
    assert unexplained == []
    ties = [d for d in comparison.differences if d.is_a_tie]
    assert len(ties) <= items / 20
    if not comparison.differences:
        for name, (ours, theirs) in comparison.numbers.items():
            assert ours == pytest.approx(theirs, abs=1e-4), name


@pytest.mark.release
@pytest.mark.parametrize(
    ("task", "items", "options"),
    [
        ("ifeval", 50, []),
        pytest.param("ifeval", 100, ["--ifeval", str(IFEVAL)], marks=needs_ifeval),
        pytest.param("gsm8k", 50, ["--gsm8k", str(FOLDER / "gsm8k")], marks=needs_gsm8k),
        ("mc1", 50, []),
        ("mc2", 50, []),
    ],
)
def test_on_transformers(task: str, items: int, options: list[str]) -> None:
    comparison = main(["--tasks", task, *BATCH, "--items", str(items), *options])[task]
    if task == "gsm8k":
        assert {name.partition(",")[2] for name in comparison.numbers} == {"strict-match", "flexible-extract"}
    assert_agreement(comparison, items)


@pytest.fixture(scope="module")
def on_vllm() -> dict[str, Comparison]:
    """All comparisons at once, as vLLM cannot be started repeatedly in one process."""
    if importlib.util.find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
        pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
    tasks, options = "ifeval,mc1,mc2", ["--engine", "vllm", "--items", "50", *BATCH]
    if (FOLDER / "gsm8k" / "test.jsonl").is_file():
        tasks, options = f"{tasks},gsm8k", [*options, "--gsm8k", str(FOLDER / "gsm8k")]
    return main(["--tasks", tasks, *options])


@pytest.mark.vllm
@pytest.mark.release
@pytest.mark.parametrize("task", ["ifeval", "mc1", "mc2", "gsm8k"])
def test_on_vllm(on_vllm: dict[str, Comparison], task: str) -> None:
    if task not in on_vllm:
        pytest.skip("RECOVER_TEST_DATA has no gsm8k/test.jsonl")
    assert_agreement(on_vllm[task], 50)
