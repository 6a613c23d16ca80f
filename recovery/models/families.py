"""What families of models do in their own way: noise in training, positions, output heads, generation configs."""

from typing import Any

import torch
from torch import Tensor

from recovery.chunked_loss import Head

HEAD_CHECK_TOKENS = 8
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
# The noise of routers in training, by its exact names: PhiMoE's router_jitter_noise is none, but a threshold.
NOISE = ("jitter_noise", "input_jitter_noise", "moe_jitter_eps")
SAMPLING_ROUTERS = ("PhimoeTopKRouter",)  # draw the experts at random in training
RESCALING = ("dynamic", "longrope")  # of positions, once a text is longer than the model first learned


def unscaled_positions(config: Any) -> int | None:
    """How many tokens a model reads before it rescales positions, as Phi-4-mini does; None if it never does.

    No more are read here: the longest row of a batch would rescale the others, and a cache keeps what was read before
    as it was, so that a token's log-prob would depend on the rows beside it."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]  # some have one for each kind of layer
    learned = [
        config.max_position_embeddings if kind["rope_type"] == "dynamic" else kind["original_max_position_embeddings"]
        for kind in kinds
        if kind.get("rope_type") in RESCALING
    ]
    return min(learned, default=None)


def disable_dropout(model: Any) -> None:
    """Set every dropout and the noise of routers to zero: with them, a student would differ from itself as teacher,
    and resumed runs from uninterrupted ones."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):  # Falcon reads its config at every step
            # The names differ by family: attn_dropout_p, resid_pdrop, …
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                is_dropout = "dropout" in name or "pdrop" in name or name == "layerdrop"
                if isinstance(value, float) and (is_dropout or name in NOISE):
                    setattr(holder, name, 0.0)


def set_training(model: Any) -> None:
    """Set a model to training, but for routers that would choose other experts than in its rollouts."""
    model.train()
    for module in model.modules():
        if type(module).__name__ in SAMPLING_ROUTERS:
            module.eval()


@torch.no_grad()
def head_matches(causal: Any) -> bool:
    """Whether `Head` reproduces the model's logits: losses are computed from hidden states by `Head`."""
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
    if config is None or (_is_valid(config) and config.temperature != 0):
        return
    if config.do_sample is False or config.temperature == 0:  # the likeliest token each time
        config.update(do_sample=False, **dict.fromkeys(SAMPLING))
    else:
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
