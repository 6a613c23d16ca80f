"""How transformers decodes here: caches that are appended to in place, attention of one new token, and decoders, which
make one forward pass per new token for all rows of a batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from recovery.errors import RecoverError


def bytes_per_token(cache: DynamicCache) -> int:
    """Return the bytes of one row's keys and values per token. A sliding-window layer counts like a full one."""
    states = [getattr(layer, kind, None) for layer in cache.layers for kind in ("keys", "values")]
    return sum(s.shape[1] * s.shape[3] * s.element_size() for s in states if s is not None)


class JoinedCache:
    """One cache joined from several, with rows shifted so that all end in the same column."""

    def __init__(self, rows: int, width: int):
        self.rows, self.width, self.cache = rows, width, DynamicCache()

    def put(self, cache: DynamicCache, source: Tensor, rows: Tensor) -> None:
        for i, layer in enumerate(cache.layers):
            if i == len(self.cache.layers):
                buffers = (_GrowableBuffer(self.rows, self.width, states) for states in (layer.keys, layer.values))
                self.cache.layers.append(GrowableLayer(*buffers))
            start = self.width - layer.keys.shape[2]
            for buffer, states in zip(self.cache.layers[i].buffers, (layer.keys, layer.values), strict=True):
                buffer.states[rows, :, start : self.width] = states[source]


class _GrowableBuffer:
    """Keys or values [rows, heads, columns, width] with spare columns: appending one copies none of the others."""

    def __init__(self, rows: int, columns: int, like: Tensor):
        self.rows, self.columns = rows, columns
        _, heads, _, width = like.shape
        self.states = like.new_zeros(rows, heads, columns + _spare_columns(columns), width)

    @property
    def filled(self) -> Tensor:
        return self.states[: self.rows, :, : self.columns]

    def append(self, new: Tensor) -> Tensor:
        end = self.columns + new.shape[2]
        if end > self.states.shape[2]:
            more = new.new_zeros(*new.shape[:2], _spare_columns(end), new.shape[3])
            self.states = torch.cat([self.filled, more], dim=2)
        self.states[: self.rows, :, self.columns : end] = new
        self.columns = end
        return self.filled

    def select_rows(self, order: Tensor) -> None:
        moved = (order != torch.arange(len(order), device=order.device)).nonzero().squeeze(-1)
        self.states[moved, :, : self.columns] = self.states[order[moved], :, : self.columns]
        self.rows = len(order)


def _spare_columns(columns: int) -> int:
    return 32 + columns // 4


class GrowableLayer(DynamicLayer):
    """A cache layer that appends in place and removes rows in place."""

    def __init__(self, keys: _GrowableBuffer, values: _GrowableBuffer):
        super().__init__()
        self.buffers = keys, values
        self.is_initialized = True
        self._publish()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer.append(new)
        return self._publish()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        for buffer in self.buffers:
            buffer.select_rows(beam_idx)
        self._publish()

    def _publish(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (buffer.filled for buffer in self.buffers)
        return self.keys, self.values


class FixedLayer(DynamicLayer):
    """A cache layer whose tensors never move: new keys and values go to the column that a tensor holds."""

    def __init__(self, layer: DynamicLayer, columns: int, column: Tensor):
        super().__init__()
        self.column, self.is_initialized = column, True
        spare = columns - layer.keys.shape[2]
        self.keys, self.values = (pad(states, (0, 0, 0, spare)) for states in (layer.keys, layer.values))

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attend with one new token in float32, and a mask that is the same for all heads; leave every other case to
    transformers.

    With a mask, transformers first copies keys and values for every query head that shares them. Here the query heads
    that share a key head are the rows of one small matrix product."""
    rows, heads, count, width = query.shape
    is_plain = attention_mask is None or (attention_mask.dtype == torch.bool and attention_mask.shape[1] == 1)
    if count > 1 or query.dtype != torch.float32 or options.get("position_bias") is not None or not is_plain:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    key_heads = key.shape[1]
    scale = options.get("scaling") or width**-0.5
    scores = (query.reshape(rows, key_heads, heads // key_heads, width) * scale) @ key.transpose(-1, -2)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, -torch.inf)
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


def cannot_generate(model: Any) -> RecoverError:
    return RecoverError(
        f"The engine transformers cannot generate with models of the family {model.config.model_type} here. Choose "
        "--engine vllm, or another model."
    )


def forward(model: Any, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Return the logits after the last token, and the cache."""
    output = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    if getattr(output, "past_key_values", None) is None:  # of Mamba and RWKV the cache has another name
        raise cannot_generate(model)
    return output.logits[:, -1], output.past_key_values


class GrowingDecoder:
    check_every, shrink_below = 1, 1.0

    def __init__(self, model: Any, cache: Any, mask: Tensor):
        self.model, self.cache, self.mask = model, cache, mask
        self.positions = mask.sum(-1, keepdim=True)

    def step(self, tokens: Tensor) -> Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        logits, self.cache = forward(self.model, tokens[:, None], self.mask, self.positions, self.cache)
        self.positions = self.positions + 1
        return logits

    def select_rows(self, order: Tensor) -> "GrowingDecoder":
        self.mask, self.positions = self.mask[order], self.positions[order]
        self.cache.reorder_cache(order)
        return self


class FixedDecoder:
    """Every tensor is allocated once, with space for all new tokens, so that a GPU can record a CUDA graph.

    Replaying the graph avoids launching about a thousand small kernels per token, which takes ten times as long as
    running them. Finished rows are checked only every `check_every` tokens, since reading the answer stalls the GPU,
    and are removed when more than half of the rows have finished, since the graph must then be recorded again."""

    check_every, shrink_below = 16, 0.5

    def __init__(self, model: Any, layers: list[FixedLayer], column: Tensor, allowed: Tensor, positions: Tensor):
        self.model, self.column, self.allowed, self.positions = model, column, allowed, positions
        self.cache = DynamicCache()
        self.cache.layers = list(layers)
        self.tokens = torch.zeros_like(positions)
        self.graph: Any = None

    @staticmethod
    def required_bytes(cache: DynamicCache, mask: Tensor, new_tokens: int) -> int:
        """Return the memory of all keys and values, which is allocated at the start."""
        return len(mask) * (mask.shape[1] + new_tokens) * bytes_per_token(cache)

    @classmethod
    def from_prefill(cls, model: Any, cache: DynamicCache, mask: Tensor, new_tokens: int) -> "FixedDecoder":
        """Continue after the prompts in `cache`, whose layers are moved out of it."""
        rows, width = mask.shape
        column = torch.full((1,), width, device=mask.device)
        allowed = torch.zeros(rows, 1, 1, width + new_tokens, dtype=torch.bool, device=mask.device)
        allowed[:, 0, 0, :width] = mask.bool()
        # Each layer leaves the cache as it is copied: two copies of all layers would dominate the memory of a batch.
        layers = [FixedLayer(cache.layers.pop(0), width + new_tokens, column) for _ in range(len(cache.layers))]
        return cls(model, layers, column, allowed, mask.sum(-1, keepdim=True))

    def step(self, tokens: Tensor) -> Tensor:
        self.tokens.copy_(tokens[:, None])
        self.allowed.index_fill_(3, self.column, True)
        if tokens.device.type != "cuda":
            self.logits = self._forward()
        else:
            self.graph = self.graph or self._record_graph()
            self.graph.replay()
        self.positions += 1
        self.column += 1
        return self.logits

    def _forward(self) -> Tensor:
        return forward(self.model, self.tokens, self.allowed, self.positions, self.cache)[0]

    def _record_graph(self) -> Any:
        """Record the forward pass after two warm-up runs; repeated runs write the same values."""
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.logits = self._forward()
        return graph

    def select_rows(self, order: Tensor) -> "FixedDecoder":
        for layer in self.cache.layers:
            layer.keys, layer.values = layer.keys[order], layer.values[order]
        layers: list[FixedLayer] = self.cache.layers
        return FixedDecoder(self.model, layers, self.column, self.allowed[order], self.positions[order])
