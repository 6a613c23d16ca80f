"""Plans for a model of 8 billion parameters on GPUs of 80 GB, and what is said where one does not fit."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.gpu_plan import GpuPlan
from pipelines.settings.defaults import defaults_for
from recovery.errors import RecoverError
from tests.real_shapes import save_config

LARGE = defaults_for(8_000_000_000).model_copy(update={"bf16": True})
TOKENS = 10_000_000


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_config(tmp_path_factory.mktemp("models") / "8b", "8b")


def plan(base: str, processes: int = 1, memory: float = 80e9, **changes: Any) -> GpuPlan:
    settings = LARGE.model_copy(update=changes)
    return GpuPlan(base, "Qwen3-8B", settings, TOKENS, is_counted=True, processes=processes, gpu_memory=memory)


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
    assert plan(base, 8, 26e9, **changes).fits
    for name, value in changes.items():
        assert not plan(base, 8, 26e9, **{"checkpointing": False, "lora_rank": 0, name: value}).fits


def test_a_gpu_that_is_too_small_for_any_of_it_is_not_advised_around(base: str) -> None:
    assert refused(plan(base, memory=16e9)).endswith("choose a smaller model, or larger GPUs.")


def test_too_many_processes_for_the_rows_are_refused_and_not_compared(base: str) -> None:
    assert "too few for 128 processes" in refused(plan(base, 128))
    assert [other.processes for other in plan(base).by_gpu_count()] == [1, 2, 4, 8, 16, 32, 64]
    few = LARGE.distill.model_copy(update={"rows": 5})
    assert [other.processes for other in plan(base, distill=few).by_gpu_count()] == [1, 2, 4]


def test_the_cost_is_that_of_all_gpus_for_all_hours(base: str) -> None:
    planned = replace(plan(base, 4), price=2.5)
    assert planned.cost == pytest.approx(2.5 * 4 * planned.seconds / 3600)
    assert plan(base).cost is None
    assert planned.as_json()["others"][2]["cost"] == planned.as_json()["cost"] == round(planned.cost, 2)


def test_more_gpus_mid_train_faster_and_a_speed_that_was_seen_counts(base: str) -> None:
    def midtraining(planned: GpuPlan) -> float:
        return next(seconds for name, seconds in planned.stages if name.startswith("mid-training"))

    one, four = midtraining(plan(base)), midtraining(plan(base, 4))
    assert one / 4 < four < one
    slow, fast = (midtraining(replace(plan(base), tokens_per_second=speed)) for speed in (1000.0, 2000.0))
    assert slow == pytest.approx(2 * fast)
    assert "2,000 tokens a second" in replace(plan(base), tokens_per_second=2000.0).assumptions[0]
