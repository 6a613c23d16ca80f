"""Several processes under `torchrun`, each with its share of every draw; one process otherwise.

A step is divided by the target tokens of all ranks together, so its result does not depend on how many there are.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if _several() else 0


def mine(items: Sequence[T]) -> list[T]:
    """This rank's share."""
    return list(items[dist.get_rank() :: dist.get_world_size()] if _several() else items)


def total(value: float, device: torch.device) -> float:
    if not _several():
        return value
    summed = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(summed)
    return float(summed)


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Every rank ends with the gradient of the whole step; one that drew nothing adds zero."""
    if not _several():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
