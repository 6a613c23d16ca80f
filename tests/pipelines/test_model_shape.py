"""Counts from a config, against those of the models."""

from pathlib import Path

import pytest
from transformers import AutoConfig, GPT2Config, Qwen3MoeConfig

from pipelines.training_memory import ModelShape
from recovery.models.adapters import Adapter
from recovery.models.students import load_student
from tests.models import save_tiny
from tests.real_shapes import save_config


def test_real_models_have_the_parameters_that_they_are_named_for(tmp_path: Path) -> None:
    large, small = (ModelShape.of(save_config(tmp_path / name, name)) for name in ("8b", "0.6b"))
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
    assert AutoConfig.from_pretrained(tmp_path / "moe").num_experts == 8
