"""Teachers that are the student itself: as it is (`LiveTeacher`), or the average of its weights (`EmaTeacher`).

Without a context that the student does not see, a self-teacher agrees with the student, or nearly.
"""

import copy
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.samples import Batch, Sample
from recovery.teachers import Distribution, forward_flops

EMA_DECAY = 0.95  # a step moves the average by 5 % towards the student


class LiveTeacher:
    """The student's own weights as they are now. They move with every step, so nothing holds the student in place."""

    def __init__(self, student: Student):
        self._student = student

    def flops(self, samples: list[Sample]) -> float:
        return forward_flops(self._student, samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        return Distribution.from_hidden(self._student.hidden(batch), self._student.head)


class EmaTeacher:
    """The exponential moving average of the student's trained weights; the caller moves it between two steps.

    Weights that are not trained, such as those below an adapter, are shared with the student."""

    def __init__(self, student: Student, decay: float = EMA_DECAY):
        if not 0 <= decay < 1:
            raise RecoverError(f"The decay of the teacher's average must be at least 0 and below 1, not {decay:g}.")
        shared = {id(p): p for p in student.model.parameters() if not p.requires_grad}
        self._student, self.decay = student, decay
        self._trained = {name for name, p in student.model.named_parameters() if p.requires_grad}
        self._average = replace(student, model=copy.deepcopy(student.model, shared))
        self._average.model.requires_grad_(False)

    def move(self) -> None:
        """Move the average towards the student's weights. Call it once after each step."""
        current = dict(self._student.model.named_parameters())
        for name, average in self._weights().items():
            average.lerp_(current[name].detach(), 1 - self.decay)

    def save(self, path: Path) -> None:
        save_file({name: weights.contiguous() for name, weights in self._weights().items()}, path)

    def load(self, path: Path) -> None:
        saved = load_file(path)
        for name, average in self._weights().items():
            average.copy_(saved[name])

    def flops(self, samples: list[Sample]) -> float:
        return forward_flops(self._average, samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        self._average.vocabulary = self._student.vocabulary
        return Distribution.from_hidden(self._average.hidden(batch), self._average.head)

    def _weights(self) -> dict[str, Tensor]:
        return {name: p for name, p in self._average.model.named_parameters() if name in self._trained}
