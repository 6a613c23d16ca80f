"""Keys and values of every token so far, kept where the next ones have room."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer


def remembers_every_token(cache: DynamicCache) -> bool:
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def bytes_a_token(cache: DynamicCache) -> int:
    """Of the keys and values of one row. A layer that forgets (a sliding window) counts as if it did not."""
    states = [getattr(layer, kind, None) for layer in cache.layers for kind in ("keys", "values")]
    return sum(s.shape[1] * s.shape[3] * s.element_size() for s in states if s is not None)


class JoinedCache:
    """One cache from several, shifted so that all their rows end in the same column."""

    def __init__(self, rows: int, width: int):
        self.rows, self.width, self.cache = rows, width, DynamicCache()

    def put(self, cache: DynamicCache, source: Tensor, rows: Tensor) -> None:
        for i, layer in enumerate(cache.layers):
            if i == len(self.cache.layers):
                rooms = (_Room(self.rows, self.width, states) for states in (layer.keys, layer.values))
                self.cache.layers.append(RoomyLayer(*rooms))
            start = self.width - layer.keys.shape[2]
            for room, states in zip(self.cache.layers[i].rooms, (layer.keys, layer.values), strict=True):
                room.states[rows, :, start : self.width] = states[source]


class _Room:
    """Keys or values [rows, heads, columns, width] with columns to spare: adding one copies none of the others."""

    def __init__(self, rows: int, columns: int, like: Tensor):
        self.rows, self.columns = rows, columns
        _, heads, _, width = like.shape
        self.states = like.new_zeros(rows, heads, columns + _spare(columns), width)

    @property
    def filled(self) -> Tensor:
        return self.states[: self.rows, :, : self.columns]

    def add(self, new: Tensor) -> Tensor:
        end = self.columns + new.shape[2]
        if end > self.states.shape[2]:
            more = new.new_zeros(*new.shape[:2], _spare(end), new.shape[3])
            self.states = torch.cat([self.filled, more], dim=2)
        self.states[: self.rows, :, self.columns : end] = new
        self.columns = end
        return self.filled

    def keep(self, order: Tensor) -> None:
        moved = (order != torch.arange(len(order), device=order.device)).nonzero().squeeze(-1)
        self.states[moved, :, : self.columns] = self.states[order[moved], :, : self.columns]
        self.rows = len(order)


def _spare(columns: int) -> int:
    return 32 + columns // 4


class RoomyLayer(DynamicLayer):
    """A layer of transformers' cache whose keys and values have room to grow, and whose rows leave in place."""

    def __init__(self, keys: _Room, values: _Room):
        super().__init__()
        self.rooms = keys, values
        self.is_initialized = True
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for room, new in zip(self.rooms, (key_states, value_states), strict=True):
            room.add(new)
        return self._show()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        for room in self.rooms:
            room.keep(beam_idx)
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (room.filled for room in self.rooms)
        return self.keys, self.values


class FixedLayer(DynamicLayer):
    """A layer whose keys and values never move: the next token's go to the column that a tensor names."""

    def __init__(self, layer: DynamicLayer, columns: int, column: Tensor):
        super().__init__()
        self.column, self.is_initialized = column, True
        self.keys, self.values = (_widened(states, columns) for states in (layer.keys, layer.values))

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values


def _widened(states: Tensor, columns: int) -> Tensor:
    rows, heads, filled, width = states.shape
    wide = states.new_zeros(rows, heads, columns, width)
    wide[:, :, :filled] = states
    return wide
