"""What a training is said to take before anything is loaded, of a model of 8 billion parameters."""

import json
from pathlib import Path

import pytest
from transformers import Qwen3Config

from pipelines.machine.memory_check import check_it_fits, check_window
from pipelines.settings import Settings, apply_overrides, defaults_for
from recovery.errors import RecoverError

LARGE = defaults_for(8_000_000_000).model_copy(update={"bf16": True})
CARD = 80 * 2**30


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pipelines.machine.memory_check.memory", lambda: CARD)
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, intermediate_size=12_288, tie_word_embeddings=False,
    )  # fmt: skip
    config.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def refused(model: str, settings: Settings, *teachers: list[str]) -> str:
    with pytest.raises(RecoverError, match="training it so takes about") as told:
        check_it_fits(model, settings, *teachers)
    return str(told.value)


def test_eight_billion_parameters_fit_a_card_of_80_gb_with_the_defaults(model: str) -> None:
    check_it_fits(model, LARGE, [model], [model])


def test_what_a_step_keeps_is_counted_and_what_would_need_less_is_said(model: str) -> None:
    """As it was measured at that width: 223 kB a token and layer, and a copy of the weights in bfloat16."""
    said = refused(model, LARGE.model_copy(update={"checkpointing": False}), [model])
    assert "takes about 122 GB and there are 86 GB here; with checkpointing = true it would take about 46 GB" in said
    assert "with tokens_at_once = 2048 it would take about 72 GB" in said
    assert "with lora_rank = 64 it would take about 46 GB" in refused(model, LARGE.model_copy(update={"lora_rank": 0}))


@pytest.mark.parametrize("window", [1, 40_000])
def test_a_row_is_no_longer_than_the_model_has_places(model: str, window: int) -> None:
    check_window(model, LARGE)
    with pytest.raises(RecoverError, match="from 2 to 32768 tokens"):
        check_window(model, apply_overrides(LARGE, {"midtrain": {"window": window}}))


def test_a_teacher_is_counted_unless_it_is_what_the_adapter_sits_on(model: str, tmp_path: Path) -> None:
    other, adapter = tmp_path / "other", tmp_path / "adapter"
    other.symlink_to(model)
    check_it_fits(model, LARGE, [str(other)])  # the same folder by another name
    other.unlink()
    other.mkdir()
    (other / "config.json").write_bytes((Path(model) / "config.json").read_bytes())
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": model}))
    check_it_fits(model, LARGE, [model, str(adapter)])
    check_it_fits(model, LARGE, [str(other)])
    assert "there are 86 GB" in refused(model, LARGE, [], [str(other), str(other)])
