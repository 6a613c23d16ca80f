"""The memory of training as computed, against what processes hold while they train."""

from pathlib import Path

import pytest

from benchmarks.heap import can_measure
from benchmarks.training_memory import PHASES, Case, compare
from pipelines.settings.defaults import defaults_for
from pipelines.training_memory import Device, ModelShape, Teacher, peak, sums, training_memory
from tests.real_shapes import save_config

ALLOWED = 0.15
PARTS = {"weights", "optimiser", *PHASES}

needs_heap = pytest.mark.skipif(not can_measure(), reason="C's library does not say what is allocated")


def check(case: Case, processes: int) -> None:
    (comparison,) = compare([case], processes)
    assert set(comparison.seen) == PARTS
    wrong = {part: f"{comparison.error(part):+.0%}" for part in PARTS if abs(comparison.error(part)) > ALLOWED}
    assert not wrong, comparison


@needs_heap
@pytest.mark.release
def test_an_adapter_takes_what_is_computed() -> None:
    check(Case(rank=16, bf16=True), 1)


@needs_heap
@pytest.mark.release
@pytest.mark.parametrize(
    "case",
    [
        Case(layers=4),
        Case(bf16=True, layers=4),
        Case(bf16=True, checkpointing=True, vocabulary=16_384, layers=3),
        Case(rank=16, checkpointing=True, layers=4),
        Case(bf16=True, family="llama", layers=4),
        Case(rank=8, family="mistral", layers=4),
        Case(layers=12, reply=260),  # replies take more than reading the prompts does
    ],
    ids=lambda case: case.name,
)
def test_one_process_takes_what_is_computed(case: Case) -> None:
    check(case, 1)


@needs_heap
@pytest.mark.release
@pytest.mark.parametrize(
    "case",
    [Case(bf16=True, layers=4), Case(checkpointing=True, layers=4), Case(rank=16, bf16=True, layers=4)],
    ids=lambda case: case.name,
)
def test_each_of_two_processes_takes_what_is_computed(case: Case) -> None:
    check(case, 2)


def test_vllm_takes_its_share_and_no_kv_cache(tmp_path: Path) -> None:
    shape = ModelShape.of(save_config(tmp_path, "8b"))
    settings = defaults_for(shape.parameters).model_copy(update={"bf16": True})
    for processes, uses_vllm in ((1, True), (1, False), (8, False)):
        memory = training_memory(
            shape, settings, [Teacher(head=shape.head)], Device(80e9, processes), 5e9, uses_vllm=uses_vllm
        )
        assert peak(memory) == max(sums(memory)[phase] for phase in PHASES)
        assert (memory["in a step"]["vLLM"] > 0) == uses_vllm
        assert memory["between steps"]["KV cache"] == (0 if uses_vllm else 5e9)


def test_more_processes_share_out_all_but_what_each_needs_whole(tmp_path: Path) -> None:
    shape = ModelShape.of(save_config(tmp_path, "8b"))
    settings = defaults_for(shape.parameters).model_copy(update={"bf16": True, "lora_rank": 0})
    own = [Teacher(shape.parameters, shape.head)]
    memory = [training_memory(shape, settings, own, Device(80e9, count)) for count in (1, 2, 64)]
    in_a_step, last = [sums(each)["in a step"] for each in memory], sums(memory[2])
    assert [4 * shape.parameters // each["in a step"]["weights"] for each in memory] == [1, 2, 64]
    assert memory[0]["in a step"]["optimiser"] == 8 * shape.parameters
    assert in_a_step[0] > in_a_step[1] > in_a_step[2]
    # Before it is shared out, each process has loaded the student, and the teacher in bfloat16.
    assert last["while loading"] >= 6 * shape.parameters
    assert last["between steps"] >= 4 * shape.parameters
