"""The refusal of a training that needs more memory than is free, of a model of 8 billion parameters."""

import json
from pathlib import Path

import pytest

from pipelines.settings.defaults import defaults_for
from pipelines.settings.resolve import change_recipe
from pipelines.settings.schema import Settings
from pipelines.training_memory import check_memory, check_window
from recovery.errors import RecoverError
from tests.real_shapes import save_config

LARGE = defaults_for(8_000_000_000).model_copy(update={"bf16": True})
CARD = 80 * 2**30


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pipelines.training_memory.free_memory", lambda: CARD)
    return save_config(tmp_path / "model", "8b")


def refused(model: str, settings: Settings, *teachers: list[str]) -> str:
    with pytest.raises(RecoverError, match="takes about") as error:
        check_memory(model, settings, *teachers)
    return str(error.value)


def test_eight_billion_parameters_fit_a_card_of_80_gb_with_the_defaults(model: str) -> None:
    check_memory(model, LARGE, [model], [model])


def test_activations_are_counted_and_cheaper_settings_are_named(model: str) -> None:
    """As measured at that width: 223 kB for each token and layer."""
    message = refused(model, LARGE.model_copy(update={"checkpointing": False}), [model])
    assert message == (
        f"Training {model} (8.2 billion parameters) takes about 89.6 GB of memory, and 85.9 GB are free here: choose "
        "--set checkpointing=true (29.4 GB) or --set tokens_at_once=2048 (39.7 GB) or a smaller model, or a machine "
        "with more free memory."
    )
    assert "choose --set lora_rank=64 (26.5 GB) or" in refused(model, LARGE.model_copy(update={"lora_rank": 0}))


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
    assert "(8.2 billion parameters)" in refused(model, continuing, [model] * 5)  # it writes as a model of its own
    message = refused(model, LARGE, [], [str(other)] * 5)
    assert message.endswith("85.9 GB are free here: choose a smaller model, or a machine with more free memory.")
