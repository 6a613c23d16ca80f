"""What the callback must know of a trainer: whether its model can be read at all, and its other processes."""

from typing import Any

import torch
import torch.distributed as dist
from transformers.integrations import is_deepspeed_zero3_enabled

from pipelines.watch.probe_rows import evaluating
from recovery.models.adapters import changes_head
from recovery.models.model_families import head_matches


def obstacle(trainer: Any, step: int) -> str | None:
    """Why nothing can be read of its model; None if it can."""
    model = trainer.model
    if getattr(trainer, "is_fsdp_enabled", False) or is_deepspeed_zero3_enabled():
        return "several processes hold a part of the weights each"
    has_adapter = hasattr(model, "peft_config")
    if step and not has_adapter:
        return "the training goes on from a checkpoint, so the clean weights are not in memory"
    if has_adapter and changes_head(model):
        return "the adapter changes the output head"
    with evaluating(model):
        is_usual = head_matches(model.get_base_model() if has_adapter else model)
    return None if is_usual else "its output layer computes logits in a way that is not supported"


def on_any_process(is_so: bool, device: torch.device) -> bool:
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return is_so
    flag = torch.tensor(float(is_so), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)
