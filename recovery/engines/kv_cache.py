"""Cache layers for transformers that append keys and values in place instead of copying them at every token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer


def has_full_attention_only(cache: DynamicCache) -> bool:
    """Return whether every layer stores keys and values of every token (no sliding windows, no recurrent states)."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def bytes_per_token(cache: DynamicCache) -> int:
    """Return the bytes of one row's keys and values per token. A sliding-window layer counts like a full one."""
    states = [getattr(layer, kind, None) for layer in cache.layers for kind in ("keys", "values")]
    return sum(s.shape[1] * s.shape[3] * s.element_size() for s in states if s is not None)


class JoinedCache:
    """One cache joined from several, with rows shifted so that all end in the same column."""

    def __init__(self, rows: int, width: int):
        self.rows, self.width, self.cache = rows, width, DynamicCache()

    def put(self, cache: DynamicCache, source: Tensor, rows: Tensor) -> None:
        """Copy the `source` rows of a cache into these `rows`."""
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
        self.keys, self.values = (_pad_columns(states, columns) for states in (layer.keys, layer.values))

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values


def _pad_columns(states: Tensor, columns: int) -> Tensor:
    rows, heads, filled, width = states.shape
    padded = states.new_zeros(rows, heads, columns, width)
    padded[:, :, :filled] = states
    return padded
