"""A teacher that routes each sample to one of several teachers by the sample's domain.

The clean model teaches instruction following, for example, and a later checkpoint teaches what was learned since.
Each teacher reads its own samples only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.samples import Batch, Sample
from recovery.teachers import OverVocabulary, Part, Teacher, TeacherLogprobs


class RouterTeacher:
    """Uses `by_domain` for samples of those domains and `default` for all others."""

    def __init__(self, default: Teacher, by_domain: Mapping[str, Teacher]):
        self.default, self.by_domain = default, dict(by_domain)

    def flops(self, samples: list[Sample]) -> float:
        return sum(teacher.flops([samples[row] for row in rows]) for teacher, rows in self._routes(samples))

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        routes = self._routes(batch.samples)
        if len(routes) == 1:
            return routes[0][0].distribution(batch)
        teacher_index = torch.zeros_like(batch.target_rows)
        position = torch.zeros_like(batch.target_rows)
        parts = []
        for number, (teacher, rows) in enumerate(routes):
            part, targets = batch.select(rows)
            parts.append(teacher.distribution(part))
            teacher_index[targets] = number
            position[targets] = torch.arange(len(targets), device=targets.device)
        return RoutedLogprobs(parts, teacher_index, position)

    def _routes(self, samples: Sequence[Sample]) -> list[tuple[Teacher, list[int]]]:
        """Return each teacher that has samples here, with their row numbers."""
        rows: dict[str | None, list[int]] = {}
        for row, sample in enumerate(samples):
            rows.setdefault(sample.domain if sample.domain in self.by_domain else None, []).append(row)
        return [(self.default if d is None else self.by_domain[d], numbers) for d, numbers in rows.items()]


@dataclass(frozen=True)
class RoutedLogprobs(OverVocabulary):
    """The log-probs of several teachers, each of which covers some of the targets."""

    parts: list[TeacherLogprobs]
    teacher_index: Tensor  # [targets]: the index into `parts`
    position: Tensor  # [targets]: the position among that teacher's targets

    def logprobs(self, part: Part) -> Tensor:
        teacher_index, position = self.teacher_index[part], self.position[part]
        whole: Tensor | None = None
        for number, teacher in enumerate(self.parts):
            rows = (teacher_index == number).nonzero().squeeze(-1)
            if len(rows) == 0:
                continue
            values = teacher.logprobs(position[rows])
            if len(rows) == len(teacher_index):
                return values
            whole = values.new_empty(len(teacher_index), values.shape[-1]) if whole is None else whole
            whole[rows] = values
        assert whole is not None
        return whole
