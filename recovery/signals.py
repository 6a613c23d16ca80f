"""What is said about the states: the next token, a teacher's distribution, a reward, or a blend.

`prepare` sees a whole draw once (a reward needs its group); `at` sees one micro-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from torch import Tensor

from recovery.batch import Batch, Sample
from recovery.teachers import Teacher, TeacherLogprobs


@dataclass(frozen=True)
class SignalBatch:
    """One entry a target token of a micro-batch."""

    tokens: Tensor  # the label, or what the student sampled
    teacher: TeacherLogprobs | None = None
    rollout_logprobs: Tensor | None = None
    soft: bool = False  # the teacher stands in the label's place
    advantage: Tensor | None = None  # λ-weighted sum of teacher and reward, where the objective asks for one


class Signal:
    """How much teacher (`share`, the dial λ), how much reward (1 − λ)."""

    teacher: Teacher | None = None
    share: float = 1.0

    def prepare(self, sequences: list[Sample]) -> list[Sample]:
        return sequences

    def at(self, batch: Batch) -> SignalBatch:
        teacher = self.teacher.distribution(batch) if self.teacher is not None else None
        return SignalBatch(batch.target_tokens, teacher, batch.rollout_logprobs())

    def flops(self, sequences: list[Sample]) -> float:
        """Of the teacher, who reads them once."""
        return self.teacher.flops(sequences) if self.teacher is not None else 0.0


class Labels(Signal):
    """The token that stands there: a point-mass teacher. In soft rows, all that `teacher` would say there."""

    def __init__(self, teacher: Teacher | None = None):
        self.teacher = teacher

    def at(self, batch: Batch) -> SignalBatch:
        soft = {s.soft for s in batch.sequences}
        if self.teacher is None or soft == {False}:
            return SignalBatch(batch.target_tokens, None, batch.rollout_logprobs())
        if soft != {True}:
            raise ValueError("rows that are soft and rows that are not need batches of their own: see micro_batches")
        return replace(super().at(batch), soft=True)

    def flops(self, sequences: list[Sample]) -> float:
        return super().flops([s for s in sequences if s.soft])


class TeacherSignal(Signal):
    def __init__(self, teacher: Teacher):
        self.teacher = teacher


class Blend(Signal):
    """A reward for the whole reply, less its group's mean; with a teacher and share λ, both."""

    def __init__(self, reward: Callable[[Sample], float], teacher: Teacher | None = None, share: float = 0.0):
        if teacher is None and share > 0:
            raise ValueError("a blend without a teacher is a reward alone: share must be 0")
        self.reward, self.teacher, self.share = reward, teacher, share

    def prepare(self, sequences: list[Sample]) -> list[Sample]:
        rewards = [float(self.reward(s)) for s in sequences]
        groups = [(s.group, s.prompt, s.domain) for s in sequences]
        by_group: dict[object, list[float]] = {}
        for group, reward in zip(groups, rewards, strict=True):
            by_group.setdefault(group, []).append(reward)
        return [
            replace(s, reward=reward, baseline=fmean(by_group[group]))
            for s, group, reward in zip(sequences, groups, rewards, strict=True)
        ]
