"""Low-rank adapters on a frozen base: new ones, loaded ones, and where their base is."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError

from recovery.errors import RecoverError, first_line
from recovery.lab import installed_base_path

LOADED = "default"  # peft's name for the student's adapter
WEIGHTS = "adapter_model.safetensors"
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # values of peft's init_lora_weights
# In the config of an adapter: what it does then is no fixed change of its base's layers.
UNSUPPORTED = {"alora_invocation_tokens": "activated LoRA", "layer_replication": "layer replication"}
# Families with state-space layers, whose kernels read some weights directly: peft refuses adapters there.
WITHOUT_PROJECTIONS = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")


@dataclass(frozen=True)
class Adapter:
    """LoRA on every linear layer but the output head. No dropout: teacher = student must give KL = 0."""

    rank: int = 128
    alpha: int = 32
    seed: int = 0  # of the randomly initialised factor


def create(causal: Any, base: str, adapter: Adapter) -> Any:
    """Add a new adapter, initially zero, to weights that stay frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        exclude_modules=["out_proj", "conv1d"] if causal.config.model_type in WITHOUT_PROJECTIONS else None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(adapter.seed)
        return _record_base(base, get_peft_model(causal, config))


def adapter_size(causal: Any, rank: int) -> int:
    """The parameters of a new adapter, which is added to a model without weights."""
    with warnings.catch_warnings(action="ignore"):  # of patterns for experts that a family names otherwise
        adapted = create(causal, "", Adapter(rank))
    return sum(p.numel() for name, p in adapted.named_parameters() if ".lora_" in name)


def load(causal: Any, base: str, folder: str, *, trainable: bool) -> Any:
    from peft import PeftModel

    check_weights(folder)
    with loading(folder, base):
        model = PeftModel.from_pretrained(causal, folder, LOADED, is_trainable=trainable, use_safetensors=True)
        if model.peft_config[LOADED].peft_type == "LORA":  # once more: it tells what from_pretrained does not
            load_beside(model, folder, LOADED, trainable=trainable)
    if changes_head(model):
        raise head_changed(folder)
    return _record_base(base, model)


def load_beside(model: Any, folder: str, name: str, *, trainable: bool) -> None:
    """Load an adapter into a model that has one, and raise if the file holds weights that no layer takes."""
    result = model.load_adapter(folder, name, is_trainable=trainable, use_safetensors=True)
    if unused := sorted(result.unexpected_keys):
        raise RecoverError(
            f"No layer takes the weights {unused[0]} of the adapter in {folder} ({len(unused)} such in all). Merge it "
            "into its base with the versions of transformers and peft that it was trained with, and use the merged "
            "model instead."
        )


def changed_base(config: Any) -> str:
    """How the initialisation of an adapter has changed the weights below it, which are then not those of its base;
    empty if it has not."""
    how = str(getattr(config, "init_lora_weights", ""))
    return how if how.lower().startswith(CHANGES_BASE) else ""


def does_not_fit(folder: str, base: str, why: str) -> RecoverError:
    return RecoverError(
        f"The adapter in {folder} does not fit {base} ({why}). If it added tokens, merge it into its base, and use the "
        "merged model instead."
    )


@contextmanager
def loading(folder: str, base: str) -> Iterator[None]:
    """Say in a sentence what peft raises; and raise where it only warns, and would change nothing in the layers that an
    adapter has no weights for."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Found missing adapter keys")
            yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise does_not_fit(folder, base, first_line(error)) from error
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RecoverError(
            f"The adapter in {folder} cannot be loaded ({first_line(error)}). Save it again with peft's "
            "save_pretrained."
        ) from error
    except UserWarning as error:
        raise RecoverError(
            f"The adapter in {folder} lacks weights of layers of {base}, or has other names for them: it belongs to "
            "another model, or was renamed. Save it again from the model that it was trained on."
        ) from error


def check_weights(folder: str | Path) -> None:
    """Refuse an adapter that runs code as it is loaded, changes the weights below it, or is of no supported kind."""
    if not (Path(folder) / WEIGHTS).is_file():
        raise RecoverError(
            f"The adapter {folder} has no {WEIGHTS}. Pickled weights are not loaded because they can run code: save it "
            "with peft's save_pretrained."
        )
    config = read_json(Path(folder) / "adapter_config.json")
    kinds = ["Poly"] if config.get("peft_type") == "POLY" else []
    kinds += [kind for field, kind in UNSUPPORTED.items() if config.get(field) is not None]
    if kinds:
        raise RecoverError(
            f"The adapter in {folder} uses {kinds[0]}, which is not supported. Name a plain LoRA adapter, or a model "
            "of full weights."
        )
    if how := changed_base(SimpleNamespace(**config)):
        raise RecoverError(
            f"The adapter in {folder} was begun with {how}, which changes the weights below it, so switching it off "
            "would not restore its base. Merge it into its base with peft's merge_and_unload, and use the merged model."
        )


def rank(model: Any) -> int:
    """Return the rank of the adapter that `save` would write."""
    return max(layer.r[LOADED] for layer in _layers(model).values())


def saved_rank(folder: str) -> int:
    """The largest rank in a saved adapter; 0 where there is none."""
    config = Path(folder) / "adapter_config.json"
    saved = read_json(config) if config.is_file() else {}
    patterns = (saved.get("rank_pattern") or {}).values()  # of AdaLoRA with a list of the ranks that are left
    return max(saved.get("r") or 0, *(sum(rank) if isinstance(rank, list) else rank for rank in patterns), 0)


@contextmanager
def noise(model: Any) -> Iterator[None]:
    """Add random numbers to the factor of the adapter that is zero at first, and restore it on exit."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        factors = [layer.lora_B[LOADED].weight for layer in _layers(model).values()]
        saved = [factor.clone() for factor in factors]
        try:
            for factor in factors:
                factor += 0.5 * torch.randn_like(factor)
            yield
        finally:
            for factor, before in zip(factors, saved, strict=True):
                factor.copy_(before)


def layer_kinds(model: Any) -> set[str]:
    """Return the kinds of layers that the adapter changes: q_proj, down_proj, …"""
    return {path.rpartition(".")[-1] for path in _layers(model)}


def save(model: Any, folder: Path) -> None:
    """Write the adapter in peft's layout."""
    # Without save_embedding_layers=False, peft asks the hub about the base at every save.
    model.save_pretrained(folder, safe_serialization=True, selected_adapters=[LOADED], save_embedding_layers=False)


def base_of(reference: str) -> str | None:
    """Return the base of a saved adapter where it is now, or None if `reference` is not a folder with an adapter."""
    config, metadata = Path(reference) / "adapter_config.json", Path(reference) / "recover.json"
    if not config.is_file():
        return None
    settings = read_json(config)
    base = with_revision(settings.get("base_model_name_or_path") or "", settings.get("revision"))
    # First the one that lies where it lay from here: a copied project reads its own.
    relative = read_json(metadata).get("base_from_here") if metadata.is_file() else None
    if relative is not None and (copied := Path(reference) / relative).is_dir():
        return str(copied.resolve())
    if base and Path(base).is_dir():
        return base
    if built_in := installed_base_path(base):
        return built_in
    if not base:
        raise RecoverError(
            f"The file {config} names no base. Write the path or the hub id of the model that the adapter was trained "
            "on as its base_model_name_or_path."
        )
    if Path(base).is_absolute() or base.startswith(".") or base.partition("@")[0].count("/") > 1:
        raise RecoverError(
            f"The base of the adapter {reference} is missing (its config names {base!r}). Restore that model, or write "
            f"its new path as base_model_name_or_path into {config}."
        )
    return base


def read_json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecoverError(f"The file {file} is not valid JSON ({error}). Fix or delete it.") from error
    if not isinstance(values, dict):
        raise RecoverError(f"The file {file} must hold a JSON object. Fix or delete it.")
    return values


def name_and_revision(reference: str) -> tuple[str, str | None]:
    """A folder, or the parts of a hub id such as `Qwen/Qwen3-8B@main`."""
    if Path(reference).is_dir():
        return reference, None
    name, _, revision = reference.partition("@")
    return name, revision or None


def with_revision(base: str, revision: str | None) -> str:
    return f"{base}@{revision}" if revision and not Path(base).is_dir() else base


def same_model(first: str, second: str) -> bool:
    """Return whether two references name the same folder, by whatever path, or the same hub id and revision."""
    paths = [Path(first), Path(second)]
    return first == second or (all(p.is_dir() for p in paths) and paths[0].resolve() == paths[1].resolve())


def beyond_plain_lora(model: Any) -> str:
    """What the adapter has besides a low-rank product, such as "DoRA and biases"; empty for plain LoRA."""
    config = model.peft_config[LOADED]
    extras = {"DoRA": getattr(config, "use_dora", False), "saved modules": getattr(config, "modules_to_save", None)}
    extras["biases"] = getattr(config, "bias", "none") != "none" or getattr(config, "lora_bias", False)
    extras["another method than LoRA"] = str(config.peft_type.value) != "LORA"
    extras["trained tokens"] = getattr(config, "trainable_token_indices", None)
    extras["embeddings"] = any(LOADED in layer.lora_embedding_A for layer in _layers(model).values())
    return " and ".join(extra for extra, is_used in extras.items() if is_used)


def trains_biases(model: Any) -> bool:
    """Whether the adapter trains biases of the base itself, which stay changed while it is switched off."""
    return getattr(model.peft_config[LOADED], "bias", "none") != "none"


def saved_biases(folder: str) -> bool:
    """The same of a saved adapter."""
    return bool(read_json(Path(folder) / "adapter_config.json").get("bias", "none") != "none")


def can_load_beside(model: Any, folder: str) -> bool:
    """Whether a saved adapter can share the base of the model's own: if both are of one kind, and neither changes
    biases or tokens of the base itself."""
    saved, present = read_json(Path(folder) / "adapter_config.json"), model.peft_config[LOADED]
    has_biases = trains_biases(model) or saved_biases(folder)
    has_tokens = getattr(present, "trainable_token_indices", None) or saved.get("trainable_token_indices")
    return saved.get("peft_type") == present.peft_type.value and not has_biases and not has_tokens


def saved_modules(folder: str) -> list[str]:
    """Modules of the base that a saved adapter has as a whole, beside its own weights."""
    return read_json(Path(folder) / "adapter_config.json").get("modules_to_save") or []


def check_plain_lora(model: Any) -> None:
    """Raise unless vLLM can serve the adapter."""
    if used := beyond_plain_lora(model):
        raise RecoverError(f"This adapter uses {used}, which vLLM does not support. Merge it into its base first.")


def changes_head(model: Any) -> bool:
    """Whether an adapter changes the output head: logits are computed from the head's own weight only."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import TrainableTokensWrapper

    return isinstance(model.get_base_model().get_output_embeddings(), BaseTunerLayer | TrainableTokensWrapper)


def head_changed(folder: str) -> RecoverError:
    return RecoverError(
        f"The adapter in {folder} changes the output head, and this tool would ignore that change. "
        "Merge it into its base with peft's merge_and_unload, and use the merged model instead."
    )


@contextmanager
def preserve_adapter_state(model: Any) -> Iterator[None]:
    """Restore on exit which adapters are active and which parameters are trainable.

    Otherwise peft would make every adapter it activates trainable."""
    active, trainable = list(model.active_adapters), [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    finally:
        if list(model.active_adapters) != active:
            model.base_model.set_adapter(active)
        for parameter, requires_grad in trainable:
            parameter.requires_grad_(requires_grad)


def _record_base(base: str, model: Any) -> Any:
    """Set the base in peft's configs; a path is made absolute, so that it is valid from any working directory."""
    name, _, revision = (str(Path(base).absolute()), "", "") if Path(base).is_dir() else base.partition("@")
    for config in model.peft_config.values():
        config.base_model_name_or_path, config.revision = name, revision or None
    return model


def _layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    named = model.get_base_model().named_modules()
    return {path: layer for path, layer in named if isinstance(layer, LoraLayer) and LOADED in layer.r}
