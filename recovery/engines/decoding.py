"""Decoders: one forward pass per new token for all rows of a batch, with growing or with fixed tensors."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from recovery.engines.kv_cache import FixedLayer, bytes_per_token


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
    return output.logits[:, -1], output.past_key_values


class GrowingDecoder:
    """Keys, values and mask grow by one column per token; finished rows are removed at once."""

    check_every, shrink_below = 1, 1.0

    def __init__(self, model: Any, cache: Any, mask: Tensor):
        self.model, self.cache, self.mask = model, cache, mask
        self.positions = mask.sum(-1, keepdim=True)

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row and return the logits after it."""
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
        """Append one token per row and return the logits after it."""
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
