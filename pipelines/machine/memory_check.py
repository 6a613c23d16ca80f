"""Estimate whether training fits into this machine's memory, before any model is loaded."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from pipelines.settings.engine_choice import choose_engine
from pipelines.settings.schema import Settings
from recovery.distributed import processes
from recovery.engines.vllm import gpu_memory_share
from recovery.errors import RecoverError
from recovery.models.adapters import base_of, same_model
from recovery.models.students import config_of, parameters_of
from recovery.recipes import recipe

# Bytes for each parameter: weights, gradient and two moments in float32; or weights alone.
TRAINED_BYTES, FROZEN_BYTES = 16, 4
ADAPTER_SHARE = 0.05  # of the parameters, at the usual ranks


def check_memory(student: str, settings: Settings, *teachers: Sequence[str]) -> None:
    """Raise if training needs more memory than there is.

    Each sequence in `teachers` is a set of models that are loaded together, beside the student. Counted are the
    student with its optimizer, one step's activations, and the largest set of teachers; rollouts adapt to the memory
    that is left."""
    required, available = training_memory(student, settings, teachers), total_memory()
    if required <= available:
        return
    cheaper = {
        "lora_rank = 64": settings.model_copy(update={"lora_rank": settings.lora_rank or 64}),
        "checkpointing = true": settings.model_copy(update={"checkpointing": True}),
        "tokens_at_once = 2048": settings.model_copy(update={"tokens_at_once": min(2048, settings.tokens_at_once)}),
    }
    estimates = {change: training_memory(student, changed, teachers) for change, changed in cheaper.items()}
    advice = [
        f" With {change} it would take about {_gigabytes(estimate)}."
        for change, estimate in estimates.items()
        if estimate < 0.95 * required
    ]
    raise RecoverError(
        f"The model {student} has {parameters_of(student) / 1e9:.1f} billion parameters. Training it takes about "
        f"{_gigabytes(required)} of memory and this machine has {_gigabytes(available)}."
        + ("".join(advice) or " Choose a smaller model, or a machine with more memory.")
    )


def check_window(base: str, settings: Settings) -> None:
    """Raise if rows are longer than the model's context."""
    context = getattr(config_of(base).get_text_config(), "max_position_embeddings", None)
    window = settings.midtrain.window
    if not 2 <= window <= (context or window):
        limits = f"from 2 to {context}" if context else "at least 2"
        raise RecoverError(f"The setting midtrain.window must be {limits} tokens, not {window}.")


def total_memory() -> int:
    """Bytes of the GPU, or of the machine if it has none."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def training_memory(student: str, settings: Settings, teachers: Sequence[Sequence[str]]) -> float:
    """Bytes that training takes, by the same estimate."""
    count = parameters_of(student)
    own = count * (FROZEN_BYTES + ADAPTER_SHARE * TRAINED_BYTES if settings.lora_rank else TRAINED_BYTES)
    loaded = max((sum(_teacher(name, student, settings) for name in names) for names in teachers), default=0.0)
    uses_vllm = choose_engine(settings.engine, count) == "vllm" and torch.cuda.is_available()
    served = gpu_memory_share(count, total_memory()) * total_memory() if uses_vllm else 0.0
    step, parts = _step(student, count, settings), processes()
    if parts == 1:
        return own + loaded + served + step
    # Each holds its part of the models, and all of the student's weights while there is no step.
    each = (own + loaded) / parts + max(step, float(count * FROZEN_BYTES))
    return each if torch.cuda.is_available() else each * int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _teacher(name: str, student: str, settings: Settings) -> float:
    """A teacher's weights, unless they are those under the student's adapter. One that writes is a copy of its own."""
    writes = recipe(settings.distill.recipe).continued is not None
    shared = settings.lora_rank and same_model(base_of(student) or student, base_of(name) or name)
    if writes or not shared:
        return float(parameters_of(name) * FROZEN_BYTES)
    return parameters_of(name) * ADAPTER_SHARE * FROZEN_BYTES if base_of(name) else 0.0


def _step(student: str, count: int, settings: Settings) -> float:
    """Activations that are stored for the backward pass. The bytes for each token and layer were measured on layers
    as wide as those of models with 0.6 to 8 billion parameters, in bfloat16 with an adapter."""
    config = config_of(student).get_text_config()
    layers, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    width = getattr(config, "head_dim", None) or hidden // max(1, heads)
    key_value = _key_value_width(config)
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    layer = (12 * hidden + 10 * inner + 10 * heads * width + 10 * key_value) * (1 if settings.bf16 else 2)
    casts = 2.0 * count if settings.bf16 else 0.0  # weights in bfloat16, beside those in float32
    if settings.checkpointing:  # the inputs of all layers, and the activations of one layer at a time
        return float(settings.tokens_at_once * (4.0 * hidden * layers + layer) + casts / max(1, layers))
    return float(settings.tokens_at_once * layer * layers) + casts


def cache_bytes(model: str) -> int:
    """Bytes of the keys and values of one token, in the precision of a model that is not trained."""
    config = config_of(model).get_text_config()
    return 2 * int(config.num_hidden_layers) * _key_value_width(config) * FROZEN_BYTES


def _key_value_width(config: Any) -> int:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
    return int((getattr(config, "num_key_value_heads", None) or heads) * width)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.0f} GB"
