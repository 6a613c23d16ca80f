"""Whether a model can be trained here at all, told before it is loaded."""

import os
from collections.abc import Sequence
from dataclasses import replace

import torch

from pipelines.settings import Settings
from recovery.engines.vllm import gpu_memory_share
from recovery.errors import RecoverError
from recovery.models.adapters import base_of, same_model
from recovery.models.students import config_of, parameters_of

FULL, FROZEN = 16, 4  # bytes a parameter: weights, gradient and two moments in float32; or weights alone
ADAPTER = 0.05  # of the parameters, at the usual ranks


def check_it_fits(student: str, settings: Settings, *teachers: Sequence[str]) -> None:
    """The student, its optimiser, what a step keeps for its gradient, and the most of the teachers that are in memory
    together; what rollouts keep is held to what is there."""
    needed, there = _needed(student, settings, teachers), memory()
    if needed <= there:
        return
    tried = {
        "lora_rank = 64": replace(settings, lora_rank=settings.lora_rank or 64),
        "checkpointing = true": replace(settings, checkpointing=True),
        "tokens_at_once = 2048": replace(settings, tokens_at_once=min(2048, settings.tokens_at_once)),
    }
    takes = {setting: _needed(student, cheaper, teachers) for setting, cheaper in tried.items()}
    less = [f"with {setting} it would take about {_gigabytes(n)}" for setting, n in takes.items() if n < 0.95 * needed]
    raise RecoverError(
        f"{student} has {parameters_of(student) / 1e9:.1f} billion parameters: training it so takes about "
        f"{_gigabytes(needed)} and there are {_gigabytes(there)} here" + "; ".join(["", *less])
    )


def check_window(base: str, settings: Settings) -> None:
    """A row is no longer than the model has places for."""
    places, window = (
        getattr(config_of(base).get_text_config(), "max_position_embeddings", None),
        settings.midtrain.window,
    )
    if not 2 <= window <= (places or window):
        raise RecoverError(
            f"midtrain.window should be from 2 to {places or 'as much as the model takes'} tokens, not {window}"
        )


def memory() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _needed(student: str, settings: Settings, teachers: Sequence[Sequence[str]]) -> float:
    count = parameters_of(student)
    own = count * (FROZEN + ADAPTER * FULL if settings.lora_rank else FULL)
    beside = max((sum(_teacher(name, student, settings) for name in each) for each in teachers), default=0.0)
    on_card = settings.engine == "vllm" and torch.cuda.is_available()
    served = gpu_memory_share(count, memory()) * memory() if on_card else 0.0
    return own + beside + served + _of_a_step(student, count, settings)


def _teacher(name: str, student: str, settings: Settings) -> float:
    """Weights of its own, unless they are those that the student's adapter sits on."""
    shared = settings.lora_rank and same_model(base_of(student) or student, base_of(name) or name)
    if not shared:
        return parameters_of(name) * FROZEN
    return parameters_of(name) * ADAPTER * FROZEN if base_of(name) else 0.0


def _of_a_step(student: str, count: int, settings: Settings) -> float:
    """What is kept from the forward pass for the backward one. The bytes a token and layer were counted on layers of
    0.6 to 8 billion parameters' width, in bfloat16 under an adapter."""
    config = config_of(student).get_text_config()
    layers, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    width = getattr(config, "head_dim", None) or hidden // max(1, heads)
    pairs = (getattr(config, "num_key_value_heads", None) or heads) * width
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    of_layer = (12 * hidden + 10 * inner + 10 * heads * width + 10 * pairs) * (1 if settings.bf16 else 2)
    casts = 2.0 * count if settings.bf16 else 0.0  # weights in bfloat16, beside those in float32
    if settings.checkpointing:  # the layers' inputs; all else of one layer at a time
        return settings.tokens_at_once * (4.0 * hidden * layers + of_layer) + casts / max(1, layers)
    return float(settings.tokens_at_once * of_layer * layers) + casts


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.0f} GB"
