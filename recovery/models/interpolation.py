"""Where a model stands in weight space: an adapter merged into its base, the straight line back to the clean model."""

from typing import Any

import torch
from torch import Tensor

from recovery.errors import RecoverError
from recovery.losses.chunked_loss import at_least_float32
from recovery.models.adapters import same_model
from recovery.models.students import Student, load_causal


def merge(student: Student) -> Student:
    """The student's adapters added into the weights they sit on, as a frozen model of full weights.

    The student given is used up: its base is no longer clean. Save the result and load it to go on learning."""
    if not student.has_adapter:
        raise RecoverError(f"{student.path} has full weights already, so there is no adapter to merge")
    with torch.no_grad():
        model = student.model.merge_and_unload()
    model.config._name_or_path = student.path  # the base's own name would pass these weights off as clean
    return Student(model.requires_grad_(False), student.chat, student.path, student.updates)


class Line:
    """The straight line from where a student stands (share 0) to the clean model (share 1): W + share (clean − W).

    For an adapter on that model it is the adapter's scale. Points may be visited in any order: each is computed from
    both ends, so `at(0)` gives back the very bits the student began with."""

    def __init__(self, student: Student, clean: str):
        self._student = student
        self._moving = _adapter_scales(student, clean) if student.has_adapter else _full_weights(student, clean)
        self._starts = [parameter.detach().cpu().clone() for parameter, _ in self._moving]

    @torch.no_grad()
    def at(self, share: float) -> Student:
        """The student itself, moved there."""
        for (parameter, end), start in zip(self._moving, self._starts, strict=True):
            here, there = (at_least_float32(t.to(parameter.device)) for t in (start, end))
            parameter.copy_(torch.lerp(here, there, share))
        self._student.updates += 1  # engines that serve a copy now know it is stale
        return self._student


def interpolate(student: Student, clean: str, share: float) -> Student:
    """Move the student this share of the way to the clean model, in place."""
    return Line(student, clean).at(share)


def _adapter_scales(student: Student, clean: str) -> list[tuple[Any, Tensor]]:
    base = student.adapter_base or ""
    if not same_model(base, clean):
        raise RecoverError(
            f"the adapter sits on {base}, not on {clean}, so no scale of it leads there; "
            "merge it into full weights first"
        )
    # Scaling one factor scales the product.
    factors = [
        parameter
        for name, parameter in student.model.named_parameters()
        if ".lora_B." in name and any(f".lora_B.{own}." in name for own in student.model.active_adapters)
    ]
    return [(factor, torch.zeros_like(factor, device="cpu")) for factor in factors]


def _full_weights(student: Student, clean: str) -> list[tuple[Any, Tensor]]:
    ours = dict(student.model.named_parameters())
    theirs = dict(load_causal(clean, next(iter(ours.values())).dtype).named_parameters())
    if {n: p.shape for n, p in ours.items()} != {n: p.shape for n, p in theirs.items()}:
        raise RecoverError(f"{clean} and {student.path} are models of different shapes, so no line joins them")
    return [(parameter, theirs[name].detach()) for name, parameter in ours.items()]
