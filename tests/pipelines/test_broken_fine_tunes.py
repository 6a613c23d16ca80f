"""Kinds of input that `recover check` and `recover repair` refuse, each in one sentence that says what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tests.models import change_json, save_tiny, tiny_tokenizer
from tests.pipelines.options import error_of, recover

WEIGHTS, CONFIG = "model.safetensors", "config.json"

# What is done to a copy of the base.


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(edit(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def save_adapter(folder: Path, base: Path) -> None:
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules="all-linear"))
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)


def wrong_base(folder: Path) -> None:
    save_tiny(folder, seed=5)


def other_family(folder: Path) -> None:
    config = LlamaConfig(vocab_size=259, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                         intermediate_size=64)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def missing_tokenizer(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()


def adapter_without_base(folder: Path) -> None:
    save_adapter(folder, folder.with_name("base"))
    change_json(folder / "adapter_config.json", base_model_name_or_path="/nowhere/base")


def quantised(folder: Path) -> None:
    change_json(folder / CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})


def renamed_layers(folder: Path) -> None:
    edit_weights(folder, lambda weights: {name.replace("layers", "blocks"): w for name, w in weights.items()})


def not_finite(folder: Path) -> None:
    edit_weights(folder, lambda weights: {name: w * torch.nan if "norm" in name else w for name, w in weights.items()})


def incomplete(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
    names = list(load_file(folder / "model-00001-of-00002.safetensors"))
    shards = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(names)}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))


def remote_code(folder: Path) -> None:
    change_json(folder / CONFIG, model_type="custom", auto_map={"AutoConfig": "custom.Config"})
    (folder / "custom.py").write_text("raise SystemExit('ran')")


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def other_width(folder: Path) -> None:
    change_json(folder / CONFIG, hidden_size=2 * json.loads((folder / CONFIG).read_text())["hidden_size"])


def fewer_layers(folder: Path) -> None:
    """With a config of one layer less, transformers would leave out the weights of that layer without a word."""
    config = json.loads((folder / CONFIG).read_text())
    change_json(folder / CONFIG, num_hidden_layers=config["num_hidden_layers"] - 1)
    if types := config.get("layer_types"):
        change_json(folder / CONFIG, layer_types=types[:-1])


def too_many_layers(folder: Path) -> None:
    change_json(folder / CONFIG, num_hidden_layers=20, layer_types=["full_attention"] * 20)


def impossible_heads(folder: Path) -> None:
    change_json(folder / CONFIG, hidden_act="never-heard-of")


def other_rank(folder: Path) -> None:
    save_adapter(folder, folder.with_name("base"))
    change_json(folder / "adapter_config.json", r=8)


def not_json(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": ')


BROKEN = {
    wrong_base: "have nothing in common with those of",
    other_family: "is of the family llama and",
    missing_tokenizer: "has no usable tokenizer",
    adapter_without_base: "The base of the adapter",
    quantised: "are quantised (bitsandbytes)",
    renamed_layers: "they were renamed, or not saved",
    not_finite: "are not finite numbers (NaN or infinity)",
    incomplete: "are incomplete: 1 of 2 files",
    remote_code: "it needs code of its own, which is never run",
    pickled: "Pickled weights are not loaded",
    other_width: "has the shape",
    too_many_layers: "lack 'model.layers.",
    impossible_heads: "The config.json of",
    fewer_layers: "is not that of its weights: it has no 'model.layers.",
    other_rank: "it says rank 8, and they have 2",
    not_json: "tokenizer.json is not valid JSON",
}


@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
def test_a_broken_fine_tune_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    base = save_tiny(tmp_path / "base")
    make(Path(shutil.copytree(base, tmp_path / "broken")))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    refused = recover("check", tmp_path / "broken", "--base", base, "--json")
    assert BROKEN[make] in error_of(refused)
    assert isinstance(refused.exception, SystemExit)
    assert refused.stderr.count("Error: ") == 1
    assert not list((tmp_path / "work").iterdir()), "a refused command creates no project"


def test_an_adapter_of_another_base_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, other = save_tiny(tmp_path / "base"), save_tiny(tmp_path / "other", seed=5)
    save_adapter(tmp_path / "adapter", other)
    error = error_of(recover("repair", tmp_path / "adapter", "--base", base, "--json"))
    assert f"was trained on {other}, not on {base}" in error
