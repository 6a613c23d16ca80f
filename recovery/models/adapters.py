"""Low-rank adapters on a frozen base: fresh, stored, or one on top of another.

Cycle after cycle an adapter may stay as it is while the next one learns on top of it, all on one clean base. Such a
stack is saved as one adapter (a sum of low-rank products is a low-rank product of the summed rank), so that whoever
serves it sees an adapter like any other.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from recovery.errors import RecoverError
from recovery.lab import where_installed

STORED, ON_TOP = "default", "on_top"  # what peft calls the adapter that was loaded, and the one above it


@dataclass(frozen=True)
class Adapter:
    """LoRA on every linear layer but the output head. No dropout: teacher = student must give KL = 0."""

    rank: int = 128
    alpha: int = 32
    seed: int = 0  # of its random half: the same run begins with the same weights


def fresh(causal: Any, base: str, adapter: Adapter) -> Any:
    """A new adapter, zero at first, on weights that stay as they are."""
    from peft import get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(adapter.seed)
        return _sitting_on(base, get_peft_model(causal, _config(adapter)))


def stored(causal: Any, base: str, folder: str, *, learns: bool) -> Any:
    from peft import PeftModel

    model = PeftModel.from_pretrained(causal, folder, STORED, is_trainable=learns, use_safetensors=True)
    leaves_the_head(model, folder)
    return _sitting_on(base, model)


def stack(model: Any, adapter: Adapter) -> Any:
    """A new adapter above the loaded one, which goes on open_subject and learns no more."""
    plain(model, STORED)
    with torch.random.fork_rng():
        torch.manual_seed(adapter.seed)
        model.add_adapter(ON_TOP, _config(adapter))
    model.set_adapter(ON_TOP)  # peft's own note of the one that learns
    model.base_model.set_adapter([STORED, ON_TOP])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(f".{ON_TOP}." in name)
    return _sitting_on(model.peft_config[STORED].base_model_name_or_path, model)


def rank(model: Any) -> int:
    """Of what `save` would write."""
    return max(sum(layer.r[name] for name in _own(model, layer)) for layer in _layers(model).values())


def touched(model: Any) -> set[str]:
    """The kinds of layers that the adapters change: q_proj, down_proj, …"""
    return {path.rpartition(".")[-1] for path in _layers(model)}


def as_one(model: Any) -> tuple[dict[str, Tensor], Any]:
    """The adapters that speak, as the weights and the config of one."""
    from dataclasses import replace

    names, layers = list(model.active_adapters), _layers(model)
    whole, last = rank(model), model.peft_config[names[-1]]
    scale = next(layer.scaling[names[-1]] for layer in layers.values() if names[-1] in layer.scaling)
    weights: dict[str, Tensor] = {}
    for path, layer in layers.items():
        here = _own(model, layer)
        down = torch.cat([layer.lora_A[name].weight.detach() for name in here], dim=0)
        # One scale serves the whole, so a part of another scale carries the difference in its own weights.
        up = torch.cat([layer.lora_B[name].weight.detach() * (layer.scaling[name] / scale) for name in here], dim=1)
        missing = whole - down.shape[0]  # a layer that one of the adapters leaves alone: that part is zero there
        weights[f"base_model.model.{path}.lora_A.weight"] = pad(down, (0, 0, 0, missing))
        weights[f"base_model.model.{path}.lora_B.weight"] = pad(up, (0, missing))
    config = replace(
        last,
        r=whole,
        lora_alpha=scale * whole,
        target_modules=touched(model),
        rank_pattern={},
        alpha_pattern={},
        use_rslora=False,
        inference_mode=True,
    )
    return weights, config


def save(model: Any, folder: Path) -> None:
    """In peft's layout: a single adapter as peft itself writes it, a stack as the one adapter it amounts to."""
    from safetensors.torch import save_file

    if list(model.active_adapters) == [STORED]:
        # Told of no embeddings, peft would ask the hub about the base's, at every save.
        model.save_pretrained(folder, safe_serialization=True, selected_adapters=[STORED], save_embedding_layers=False)
    else:
        weights, config = as_one(model)
        save_file({k: v.cpu().contiguous() for k, v in weights.items()}, folder / "adapter_model.safetensors")
        config.save_pretrained(folder)


def where_the_base_is(base: str, folder: Path) -> dict[str, str]:
    """For the checkpoint's own record: the base, and the way to it should both have moved together."""
    return {"base": base, "base_from_here": os.path.relpath(base, folder)} if Path(base).is_dir() else {"base": base}


def base_of(reference: str) -> str | None:
    """What a stored adapter sits on, in the place where it is now; None for anything but an adapter."""
    config, record = Path(reference) / "adapter_config.json", Path(reference) / "recover.json"
    if not config.is_file():
        return None
    noted = json.loads(config.read_text())
    base = with_revision(noted.get("base_model_name_or_path") or "", noted.get("revision"))
    if Path(base).is_dir():
        return base
    way = json.loads(record.read_text()).get("base_from_here") if record.is_file() else None
    if way is not None and (moved := Path(reference) / way).is_dir():
        return str(moved.resolve())
    if built_in := where_installed(base):
        return built_in
    if not base or Path(base).is_absolute() or base.startswith("."):
        raise RecoverError(
            f"{reference} is an adapter, and the model it sits on is not there (it names {base!r}): put that model "
            f"back, or write its new place as base_model_name_or_path into {config}"
        )
    return base


def with_revision(base: str, revision: str | None) -> str:
    return f"{base}@{revision}" if revision and not Path(base).is_dir() else base


def same_model(one: str, other: str) -> bool:
    """Whether two references name one model: the same folder by whatever path, or the same hub id and revision."""
    here = [Path(one), Path(other)]
    return one == other or (all(p.is_dir() for p in here) and here[0].resolve() == here[1].resolve())


def plain(model: Any, name: str) -> None:
    """Only a plain LoRA is a low-rank product and nothing else."""
    config = model.peft_config[name]
    extras = {"DoRA": getattr(config, "use_dora", False), "saved modules": getattr(config, "modules_to_save", None)}
    extras["biases"] = getattr(config, "bias", "none") != "none" or getattr(config, "lora_bias", False)
    extras["another method than LoRA"] = str(config.peft_type.value) != "LORA"
    extras["embeddings"] = any(name in layer.lora_embedding_A for layer in _layers(model).values())
    if found := [what for what, there in extras.items() if there]:
        raise RecoverError(
            f"this adapter holds {' and '.join(found)}, which neither a stack nor vLLM can keep: "
            "merge it into its base first"
        )


def leaves_the_head(model: Any, folder: str) -> None:
    """Logits are computed from the head's own weight, which what an adapter adds to it is no part of."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if isinstance(model.get_base_model().get_output_embeddings(), BaseTunerLayer):
        raise RecoverError(
            f"the adapter in {folder} changes the output head, which would be left out of what the model says: "
            "merge it into its base with peft's merge_and_unload, and give the merged model instead"
        )


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Whatever is switched on and off inside, afterwards the same adapters speak and the same ones learn.

    peft turns gradients on with activity, which would set the frozen part of a stack learning."""
    own, learning = list(model.active_adapters), [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    finally:
        if list(model.active_adapters) != own:
            model.base_model.set_adapter(own)
        for parameter, was in learning:
            parameter.requires_grad_(was)


def _config(adapter: Adapter) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, lora_dropout=0.0, target_modules="all-linear")


def _sitting_on(base: str, model: Any) -> Any:
    """peft notes whatever string the base was loaded by; a path is noted so that it holds from anywhere."""
    name, _, revision = (str(Path(base).absolute()), "", "") if Path(base).is_dir() else base.partition("@")
    for config in model.peft_config.values():
        config.base_model_name_or_path, config.revision = name, revision or None
    return model


def _layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    named = model.get_base_model().named_modules()
    return {path: layer for path, layer in named if isinstance(layer, LoraLayer) and _own(model, layer)}


def _own(model: Any, layer: Any) -> list[str]:
    return [name for name in model.active_adapters if name in layer.r]
