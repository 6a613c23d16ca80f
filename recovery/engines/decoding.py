"""One more token of every row: the forward pass of a reply, a token at a time."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from recovery.engines.kv_cache import FixedLayer, bytes_a_token


def forward(model: Any, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Logits of what follows the last of the tokens."""
    output = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], output.past_key_values


class Growing:
    """Each token makes keys, values and mask a column longer; a row that has ended leaves at once."""

    look_every, shrink_below = 1, 1.0

    def __init__(self, model: Any, cache: Any, mask: Tensor):
        self.model, self.cache, self.mask = model, cache, mask
        self.positions = mask.sum(-1, keepdim=True)

    def add(self, tokens: Tensor) -> Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        logits, self.cache = forward(self.model, tokens[:, None], self.mask, self.positions, self.cache)
        self.positions = self.positions + 1
        return logits

    def keep(self, order: Tensor) -> "Growing":
        self.mask, self.positions = self.mask[order], self.positions[order]
        self.cache.reorder_cache(order)
        return self


class Fixed:
    """Every tensor stays where it is, with room for all that will be written.

    So a GPU can record what one token takes (a CUDA graph) and be told to do that again: asking for its thousand small
    kernels one by one takes ten times as long as they run. Whether a reply has ended is looked up now and then, for the
    answer holds up the GPU, and rows leave when more than half of them have ended, for the rest is recorded anew."""

    look_every, shrink_below = 16, 0.5

    def __init__(self, model: Any, layers: list[FixedLayer], column: Tensor, allowed: Tensor, positions: Tensor):
        self.model, self.column, self.allowed, self.positions = model, column, allowed, positions
        self.cache = DynamicCache()
        self.cache.layers = list(layers)
        self.tokens = torch.zeros_like(positions)
        self.graph: Any = None

    @staticmethod
    def bytes_after(cache: DynamicCache, mask: Tensor, room: int) -> int:
        """What keys and values will take: all of it from the start, and so the most that they could ever take."""
        return len(mask) * (mask.shape[1] + room) * bytes_a_token(cache)

    @classmethod
    def after(cls, model: Any, cache: DynamicCache, mask: Tensor, room: int) -> "Fixed":
        rows, width = mask.shape
        column = torch.full((1,), width, device=mask.device)
        allowed = torch.zeros(rows, 1, 1, width + room, dtype=torch.bool, device=mask.device)
        allowed[:, 0, 0, :width] = mask.bool()
        # Each layer leaves the cache as it is copied: all of them twice would be most of what a batch takes.
        layers = [FixedLayer(cache.layers.pop(0), width + room, column) for _ in range(len(cache.layers))]
        return cls(model, layers, column, allowed, mask.sum(-1, keepdim=True))

    def add(self, tokens: Tensor) -> Tensor:
        self.tokens.copy_(tokens[:, None])
        self.allowed.index_fill_(3, self.column, True)
        if tokens.device.type != "cuda":
            self.logits = self._forward()
        else:
            self.graph = self.graph or self._recorded()
            self.graph.replay()
        self.positions += 1
        self.column += 1
        return self.logits

    def _forward(self) -> Tensor:
        return forward(self.model, self.tokens, self.allowed, self.positions, self.cache)[0]

    def _recorded(self) -> Any:
        """Run before it is recorded, since first runs set things up; running it twice writes the same twice."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.logits = self._forward()
        return graph

    def keep(self, order: Tensor) -> "Fixed":
        for layer in self.cache.layers:
            layer.keys, layer.values = layer.keys[order], layer.values[order]
        layers: list[FixedLayer] = self.cache.layers
        return Fixed(self.model, layers, self.column, self.allowed[order], self.positions[order])
