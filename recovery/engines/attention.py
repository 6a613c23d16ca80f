"""Grouped-query attention for one new token, without copying keys and values for every query head."""

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
    """Attend with one new token in float32; leave every other case to transformers.

    With a mask, transformers first copies keys and values for every query head that shares them. Here the query heads
    that share a key head are the rows of one small matrix product."""
    rows, heads, count, width = query.shape
    if count > 1 or query.dtype != torch.float32 or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    key_heads = key.shape[1]
    scale = options.get("scaling") or width**-0.5
    scores = (query.reshape(rows, key_heads, heads // key_heads, width) * scale) @ key.transpose(-1, -2)
    if attention_mask is not None:
        allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
        scores = scores.masked_fill(~allowed, -torch.inf)
    mixed = torch.softmax(scores, dim=-1) @ value
    return mixed.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register("recover", _attend)
AttentionMaskInterface.register("recover", sdpa_mask)


def uses_grouped_attention(causal: Any) -> bool:
    """Return whether `grouped_attention` took effect on the model; call it inside that context."""
    return bool(causal.config.get_text_config()._attn_implementation == "recover")


@contextmanager
def grouped_attention(causal: Any) -> Iterator[None]:
    """Use `_attend` in a model whose attention is transformers' default (sdpa)."""
    config = causal.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa" and causal._supports_attention_backend:
        config._attn_implementation = "recover"
    try:
        yield
    finally:
        config._attn_implementation = before
