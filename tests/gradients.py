"""The gradient of a training step, which the training frees."""

from typing import Any

import torch

from recovery.models.students import Student
from recovery.objectives import Objective
from recovery.samples import Sample
from recovery.signals import Signal
from recovery.states import FixedRows
from recovery.train import Plan, TrainState, train


class _KeptGradient(torch.optim.SGD):
    """Changes no weight."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.gradient = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


UNCLIPPED = Plan(1, 0.0, clip_norm=1e9)


def gradient_of_step(
    student: Student, rows: list[Sample], signal: Signal, objective: Objective, plan: Plan = UNCLIPPED
) -> torch.Tensor:
    optimizer = _KeptGradient(student.trainable(), lr=0.0)
    list(train(student, FixedRows(rows, rows=len(rows)), signal, objective, plan, TrainState(optimizer)))
    return optimizer.gradient
