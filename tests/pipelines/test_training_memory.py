import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import Gemma4TextConfig, GPT2Config, Qwen3MoeConfig

from benchmarks.training_memory import PHASES, Case, can_measure, compare
from pipelines.settings.defaults import defaults_for
from pipelines.settings.resolve import change_recipe
from pipelines.settings.schema import Settings
from pipelines.training_memory import (
    Device,
    GpuPlan,
    ModelShape,
    Teacher,
    check_memory,
    check_window,
    peak,
    sums,
    training_memory,
)
from recovery.errors import RecoverError
from recovery.models import adapters
from recovery.models.adapters import Adapter
from recovery.models.students import load_student, model_without_weights
from tests.models import save_tiny
from tests.real_shapes import save_config

LARGE = defaults_for(8_000_000_000).model_copy(update={"bf16": True})
ALLOWED = 0.15
PARTS = {"weights", "optimiser", *PHASES}
ON_ONE = [
    Case(rank=16, bf16=True),
    Case(layers=4),
    Case(bf16=True, layers=4),
    Case(bf16=True, checkpointing=True, vocabulary=16_384, layers=3),
    Case(rank=16, checkpointing=True, layers=4),
    Case(bf16=True, family="llama", layers=4),
    Case(rank=8, family="mistral", layers=4),
    Case(layers=12, reply=260),  # replies take more than reading the prompts does
]
ON_TWO = [Case(bf16=True, layers=4), Case(checkpointing=True, layers=4), Case(rank=16, bf16=True, layers=4)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_config(tmp_path_factory.mktemp("models") / "8b", "8b")


@pytest.mark.skipif(not can_measure(), reason="C's library does not say what is allocated")
@pytest.mark.release
@pytest.mark.parametrize(
    ("processes", "case"),
    [*((1, case) for case in ON_ONE), *((2, case) for case in ON_TWO)],
    ids=lambda value: getattr(value, "name", value),
)
def test_each_process_takes_what_is_computed(processes: int, case: Case) -> None:
    (comparison,) = compare([case], processes)
    assert set(comparison.seen) == PARTS
    wrong = {part: f"{comparison.error(part):+.0%}" for part in PARTS if abs(comparison.error(part)) > ALLOWED}
    assert not wrong, comparison


def test_vllm_takes_its_share_and_no_kv_cache(base: str) -> None:
    shape = ModelShape.of(base)
    teachers = [Teacher(head=shape.head)]
    for processes, uses_vllm in ((1, True), (1, False), (8, False)):
        memory = training_memory(shape, LARGE, teachers, Device(80e9, processes), 5e9, uses_vllm=uses_vllm)
        assert peak(memory) == max(sums(memory)[phase] for phase in PHASES)
        assert (memory["in a step"]["vLLM"] > 0) == uses_vllm
        assert memory["between steps"]["KV cache"] == (0 if uses_vllm else 5e9)


def test_more_processes_share_out_all_but_what_each_needs_whole(base: str) -> None:
    shape = ModelShape.of(base)
    settings, own = LARGE.model_copy(update={"lora_rank": 0}), [Teacher(shape.parameters, shape.head)]
    memory = [training_memory(shape, settings, own, Device(80e9, count)) for count in (1, 2, 64)]
    in_a_step, last = [sums(each)["in a step"] for each in memory], sums(memory[2])
    assert [4 * shape.parameters // each["in a step"]["weights"] for each in memory] == [1, 2, 64]
    assert memory[0]["in a step"]["optimiser"] == 8 * shape.parameters
    assert in_a_step[0] > in_a_step[1] > in_a_step[2]
    # Before it is shared out, each process has loaded the student, and the teacher in bfloat16.
    assert last["while loading"] >= 6 * shape.parameters
    assert last["between steps"] >= 4 * shape.parameters


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


def test_what_does_not_help_is_not_advised(base: str) -> None:
    assert refused(plan(base, memory=16e9)).endswith("choose a smaller model, or larger GPUs.")
    few_rows = LARGE.distill.model_copy(update={"rows": 3})
    assert "--processes" not in refused(plan(base, lora_rank=0, distill=few_rows))


CARD = 80 * 2**30


@pytest.fixture
def model(base: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pipelines.training_memory.free_memory", lambda: CARD)
    return base


def refusal(model: str, settings: Settings, *teachers: list[str]) -> str:
    with pytest.raises(RecoverError, match="takes about") as error:
        check_memory(model, settings, *teachers)
    return str(error.value)


def test_the_defaults_fit_a_card_of_80_gb_and_where_others_do_not_cheaper_ones_are_named(model: str) -> None:
    """Activations as measured at that width: 223 kB for each token and layer."""
    check_memory(model, LARGE, [model], [model])
    message = refusal(model, LARGE.model_copy(update={"checkpointing": False}), [model])
    assert message == (
        f"Training {model} (8.19 billion parameters) takes about 89.6 GB of memory, and 85.9 GB are free here: choose "
        "--set checkpointing=true (29.4 GB) or --set tokens_at_once=2048 (39.7 GB) or a smaller model, or a machine "
        "with more free memory."
    )
    assert "choose --set lora_rank=64 (26.5 GB) or" in refusal(model, LARGE.model_copy(update={"lora_rank": 0}))


def test_a_model_that_is_an_adapter_takes_what_its_own_rank_does(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": model, "r": 16}))
    check_memory(str(adapter), LARGE.model_copy(update={"lora_rank": 0}))
    monkeypatch.setattr("pipelines.training_memory.free_memory", lambda: 0)
    messages = {refusal(str(adapter), LARGE.model_copy(update={"lora_rank": rank})) for rank in (0, 16, 64)}
    assert len(messages) == 1
    assert "lora_rank" not in messages.pop()


@pytest.mark.parametrize("window", [1, 40_000])
def test_a_row_is_no_longer_than_the_context(model: str, window: int) -> None:
    midtrain = LARGE.midtrain.model_copy(update={"window": window})
    check_window(model, LARGE)
    with pytest.raises(RecoverError, match="from 2 to 32768 tokens"):
        check_window(model, LARGE.model_copy(update={"midtrain": midtrain}))


def test_a_teacher_is_counted_unless_it_is_under_the_adapter(model: str, tmp_path: Path) -> None:
    other, adapter = tmp_path / "other", tmp_path / "adapter"
    other.symlink_to(model)
    check_memory(model, LARGE, [str(other)])  # the same folder by another name
    other.unlink()
    other.mkdir()
    (other / "config.json").write_bytes((Path(model) / "config.json").read_bytes())
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": model}))
    check_memory(model, LARGE, [model, str(adapter)])
    check_memory(model, LARGE, [str(other)])
    continuing = change_recipe(LARGE, "continuation", 8_000_000_000)
    check_memory(model, continuing)
    assert "(8.19 billion parameters)" in refusal(model, continuing, [model] * 5)  # it writes as a model of its own
    message = refusal(model, LARGE, [], [str(other)] * 5)
    assert message.endswith("85.9 GB are free here: choose a smaller model, or a machine with more free memory.")


def test_real_models_have_the_parameters_that_they_are_named_for(base: str, tmp_path: Path) -> None:
    large, small = ModelShape.of(base), ModelShape.of(save_config(tmp_path, "0.6b"))
    assert (large.parameters, small.parameters) == (8_190_735_360, 596_049_920)  # as their model cards have it
    assert large.layers * large.layer + large.head + large.outside == pytest.approx(large.parameters, rel=1e-4)
    assert small.outside == pytest.approx(small.head, rel=1e-4)  # the head is the embedding
    assert large.cache_bytes == 2 * 36 * 8 * 128 * 4


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_has_the_parameters_that_are_trained(tmp_path: Path, tied: bool) -> None:
    folder = str(save_tiny(tmp_path / "model", tied=tied))
    student = load_student(folder, adapter=Adapter(rank=5))
    trained = sum(p.numel() for p in student.model.parameters() if p.requires_grad)
    assert ModelShape.of(folder).adapter(5) == trained
    assert ModelShape.of(folder).adapter(0) == 0


def test_other_families_have_a_shape(tmp_path: Path) -> None:
    GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=300).save_pretrained(tmp_path / "gpt2")
    Qwen3MoeConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=300,
        intermediate_size=128, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2,
    ).save_pretrained(tmp_path / "moe")  # fmt: skip
    gpt2, experts = (ModelShape.of(str(tmp_path / name)) for name in ("gpt2", "moe"))
    assert (gpt2.inner, gpt2.key_value, gpt2.vocabulary) == (256, 64, 300)
    assert gpt2.adapter(1) == 2 * (64 + 192 + 64 + 64 + 64 + 256 + 256 + 64)
    assert experts.inner == 2 * 32  # those that a token uses
    Gemma4TextConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=300,
        head_dim=16, global_head_dim=32, layer_types=["sliding_attention", "full_attention"],
    ).save_pretrained(tmp_path / "gemma4")  # fmt: skip
    assert ModelShape.of(str(tmp_path / "gemma4")).query == 4 * 32  # of the layer with the widest heads
    causal = adapters.create(model_without_weights(str(tmp_path / "moe")), "", Adapter(rank=4))
    assert experts.adapter(4) == sum(p.numel() for p in causal.parameters() if p.requires_grad), "with all experts"


def test_modules_that_an_adapter_trains_as_a_whole_are_counted(tmp_path: Path) -> None:
    """Their base is in float32, and they have gradients and an optimiser."""
    base = save_tiny(tmp_path / "base")
    plain, whole = (tmp_path / name for name in ("plain", "whole"))
    for folder, saved in ((plain, None), (whole, ["embed_tokens"])):
        model = get_peft_model(load_student(str(base)).model, LoraConfig(r=4, modules_to_save=saved))
        model.save_pretrained(folder)
    settings, device = Settings(lora_rank=4), Device(8e9)
    of_plain, of_whole = (training_memory(ModelShape.of(str(each)), settings, [], device) for each in (plain, whole))
    embedding = load_student(str(base)).causal.get_input_embeddings().weight.numel()
    assert ModelShape.of(str(whole)).trained_beside == embedding
    assert of_whole["in a step"]["optimiser"] - of_plain["in a step"]["optimiser"] == 8 * embedding
    assert of_whole["in a step"]["gradients"] - of_plain["in a step"]["gradients"] == 4 * embedding
