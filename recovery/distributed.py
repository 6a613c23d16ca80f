"""Data parallelism under `torchrun`: each rank takes its shard of every draw. A single process takes everything.

The loss of a step is divided by the target tokens of all ranks, so its result does not depend on their number.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if _is_distributed() else 0


def shard_for_this_rank(items: Sequence[T]) -> list[T]:
    return list(items[dist.get_rank() :: dist.get_world_size()] if _is_distributed() else items)


def all_reduce_sum(value: float, device: torch.device) -> float:
    if not _is_distributed():
        return value
    summed = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(summed)
    return float(summed)


def all_reduce_gradients(parameters: Iterable[Tensor]) -> None:
    """Sum the gradients over ranks; a rank that drew nothing adds zero."""
    if not _is_distributed():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
