"""Attention of one new token, without a copy of keys and values for every query head that shares them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention of one new token in float32; anything else as transformers does it.

    With a mask, transformers first copies keys and values once for every query head that shares them. Here the heads
    that share them are the rows of one small matrix product."""
    rows, heads, count, width = query.shape
    if count > 1 or query.dtype != torch.float32 or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    shared = key.shape[1]
    scale = options.get("scaling") or width**-0.5
    scores = (query.reshape(rows, shared, heads // shared, width) * scale) @ key.transpose(-1, -2)
    if attention_mask is not None:
        allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
        scores = scores.masked_fill(~allowed, -torch.inf)
    mixed = torch.softmax(scores, dim=-1) @ value
    return mixed.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register("recover", _attend)
AttentionMaskInterface.register("recover", sdpa_mask)


def has_shared_heads(causal: Any) -> bool:
    """Within `shared_heads`: whether it took effect."""
    return bool(causal.config.get_text_config()._attn_implementation == "recover")


@contextmanager
def shared_heads(causal: Any) -> Iterator[None]:
    """Within it, a model that would take transformers' ordinary attention takes `_attend`."""
    config = causal.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa" and causal._supports_attention_backend:
        config._attn_implementation = "recover"
    try:
        yield
    finally:
        config._attn_implementation = before
