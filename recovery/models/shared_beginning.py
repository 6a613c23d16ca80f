"""Reads what all rows of a batch begin with once, such as the context that a teacher is shown for every prompt."""

from typing import Any

from torch import Tensor


def states_behind_shared(decoder: Any, tokens: Tensor, shared: int) -> Tensor | None:
    """Return the states of the tokens behind the first `shared`, which are equal in all rows; without a gradient.

    None for a model whose layers do not all keep the keys and values of every token, or that keeps none in training."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    start = DynamicCache(config=decoder.config)
    decoder(input_ids=tokens[:1, :shared], past_key_values=start, use_cache=True)
    if start.get_seq_length() != shared or any(type(layer) is not DynamicLayer for layer in start.layers):
        return None
    cache = DynamicCache()
    for i, layer in enumerate(start.layers):
        keys, values = (states.expand(len(tokens), -1, -1, -1) for states in (layer.keys, layer.values))
        cache.update(keys, values, i)
    states: Tensor = decoder(input_ids=tokens[:, shared:], past_key_values=cache, use_cache=True).last_hidden_state
    return states
