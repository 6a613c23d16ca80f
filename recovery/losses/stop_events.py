"""Stop events: all ids that end a turn are one event wherever student and teacher are compared.

A student that ends its replies with one id and a teacher that ends them with another agree on where a reply ends. Id by
id they would differ most just there, and the student would learn not to end.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# The log-prob of an id whose probability was given to another. Its exp is 0, and unlike −∞ it leaves gradients finite.
NEVER = -1e4


class _MergedColumns(torch.autograd.Function):
    """The first of these columns has their total probability, the others have none.

    A custom backward pass stores the columns alone, not tensors of [positions × vocabulary]."""

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, columns: Tensor) -> Tensor:
        parts = log_p[..., columns]
        total = parts.logsumexp(-1, keepdim=True)
        ctx.save_for_backward((parts - total).exp(), columns)
        others = torch.full_like(parts[..., 1:], NEVER)
        return log_p.index_copy(-1, columns, torch.cat([total, others], dim=-1))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        shares, columns = ctx.saved_tensors
        return upstream.index_copy(-1, columns, shares * upstream[..., columns[:1]]), None


def merge_stops(log_p: Tensor, stops: Sequence[int]) -> Tensor:
    """Merge the columns `stops` of log-probs over the vocabulary [positions, vocabulary] into the first of them."""
    return log_p if len(stops) < 2 else _MergedColumns.apply(log_p, torch.tensor(stops, device=log_p.device))


def merge_listed_stops(log_p: Tensor, is_stop: Tensor) -> Tensor:
    """Merge those of the listed tokens [positions, listed] that are stops into the first of them in each row."""
    total = log_p.masked_fill(~is_stop, NEVER).logsumexp(-1, keepdim=True)
    is_first = is_stop & (is_stop.cumsum(-1) == 1)
    return torch.where(is_first, total, log_p.masked_fill(is_stop, NEVER))


def is_in(tokens: Tensor, stops: Sequence[int]) -> Tensor:
    return torch.isin(tokens, torch.tensor(stops, dtype=tokens.dtype, device=tokens.device))
