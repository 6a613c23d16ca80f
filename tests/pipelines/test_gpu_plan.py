"""Plans for a model of 8 billion parameters on GPUs of 80 GB, and what is said where one does not fit."""

from typing import Any

import pytest

from pipelines.settings.defaults import defaults_for
from pipelines.training_memory import GpuPlan
from recovery.errors import RecoverError
from tests.real_shapes import save_config

LARGE = defaults_for(8_000_000_000).model_copy(update={"bf16": True})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_config(tmp_path_factory.mktemp("models") / "8b", "8b")


def plan(base: str, processes: int = 1, memory: float = 80e9, **changes: Any) -> GpuPlan:
    settings = LARGE.model_copy(update=changes)
    return GpuPlan(base, "Qwen3-8B", settings, processes, memory)


def refused(planned: GpuPlan) -> str:
    with pytest.raises(RecoverError) as error:
        planned.check()
    return str(error.value)


@pytest.mark.parametrize("processes", [1, 4, 16])
def test_an_adapter_fits_any_number_of_gpus(base: str, processes: int) -> None:
    planned = plan(base, processes)
    planned.check()
    assert planned.peak < 80e9
    assert planned.engine == ("vllm" if processes == 1 else "transformers")


def test_all_weights_do_not_fit_one_gpu_and_what_would_does(base: str) -> None:
    message = refused(plan(base, lora_rank=0))
    assert message == (
        "A cycle of Qwen3-8B takes 200 GB of each GPU in a step, and 80 GB are there: choose --processes 4 (70.4 GB) "
        "or --set lora_rank=64 (55 GB) or a smaller model, or larger GPUs."
    )
    plan(base, 4, lora_rank=0).check()
    plan(base, lora_rank=64).check()
    refused(plan(base, 2, lora_rank=0))  # --processes 4 is the smallest number


def test_where_no_single_change_is_enough_all_together_are_named(base: str) -> None:
    planned = plan(base, 8, 26e9, checkpointing=False, lora_rank=0)
    changes = {"lora_rank": 64, "checkpointing": True, "tokens_at_once": 2048}
    flags = "--set lora_rank=64 --set checkpointing=true --set tokens_at_once=2048"
    assert f"choose {flags} (24.2 GB) or" in refused(planned)
    plan(base, 8, 26e9, **changes).check()
    for name, value in changes.items():
        refused(plan(base, 8, 26e9, **{"checkpointing": False, "lora_rank": 0, name: value}))


def test_a_gpu_that_is_too_small_for_any_of_it_is_not_advised_around(base: str) -> None:
    assert refused(plan(base, memory=16e9)).endswith("choose a smaller model, or larger GPUs.")


def test_no_more_gpus_are_advised_than_a_step_has_rows(base: str) -> None:
    few = LARGE.distill.model_copy(update={"rows": 3})
    assert "--processes" not in refused(plan(base, lora_rank=0, distill=few))
