"""Checks and fixes that make models of different families trainable: dropout, output heads, generation configs."""

from typing import Any

import torch
from torch import Tensor

from recovery.chunked_loss import Head
from recovery.errors import RecoverError

HEAD_CHECK_TOKENS = 8


def disable_dropout(model: Any) -> None:
    """Set every dropout to zero: with dropout, a student would differ from itself as teacher, and resumed runs from
    uninterrupted ones."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):  # Falcon reads its config at every step
            _zero_dropout_attributes(holder)


def _zero_dropout_attributes(holder: Any) -> None:
    """Zero all float attributes named after dropout; their names differ by family (attn_dropout_p, resid_pdrop, …)."""
    names = [name for name, value in getattr(holder, "__dict__", {}).items() if isinstance(value, float)]
    for name in names:
        if "dropout" in name or "pdrop" in name:
            setattr(holder, name, 0.0)


def check_head(causal: Any, reference: str) -> None:
    """Raise unless `Head` reproduces the model's logits, since losses are computed from hidden states by `Head`."""
    if not head_matches(causal):
        raise RecoverError(
            f"The output layer of {reference} computes its logits in a way this tool does not support. "
            "Choose a model of another family."
        )


@torch.no_grad()
def head_matches(causal: Any) -> bool:
    tokens = torch.arange(HEAD_CHECK_TOKENS, device=next(causal.parameters()).device)[None]
    states: list[Tensor] = []
    try:
        # States and logits must come from the same pass: in some families two passes differ.
        hook = causal.get_decoder().register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
        theirs, head = causal(input_ids=tokens, use_cache=False).logits, Head.from_model(causal)
        hook.remove()
    except (AttributeError, TypeError):  # its decoder or its output embeddings are of another kind
        return False
    if not theirs.isfinite().all():  # broken weights or too narrow a dtype: not the head's fault
        return True
    if not states:
        return False
    ours = head.logits(states[-1])
    eps = max(torch.finfo(part.dtype).eps for part in (states[-1], head.weight))  # Mamba's states are in float32
    rounding = max(1e-4, 8 * eps) * float(theirs.abs().max())
    return ours.shape == theirs.shape and torch.allclose(ours, theirs.to(ours.dtype), rtol=0.0, atol=rounding)


def fix_generation_config(causal: Any) -> None:
    """Make the generation config valid: transformers loads an invalid one but then refuses to save the model.

    Several families ship one, most often with sampling parameters but without `do_sample`."""
    from transformers import GenerationConfig

    config = causal.generation_config
    if config is None or _is_valid(config):
        return
    config.do_sample = True
    if not _is_valid(config):
        ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        causal.generation_config = GenerationConfig(**ids)


def _is_valid(generation_config: Any) -> bool:
    try:
        generation_config.validate(strict=True)
    except ValueError:
        return False
    return True
