"""Signals: what the student learns at each target token. The label, a teacher's distribution, a reward, or a blend.

`prepare` receives all samples of a draw once (a reward needs its group); `compute` receives one micro-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

import torch
from torch import Tensor

from recovery.samples import Batch, Sample
from recovery.teachers import Compared, InContext, RouterTeacher, Teacher, TeacherLogprobs


@dataclass(frozen=True)
class SignalBatch:
    """The signal of one micro-batch, with one entry per target token."""

    tokens: Tensor  # the label, or the token the student sampled
    teacher: TeacherLogprobs | None = None
    rollout_logprobs: Tensor | None = None
    soft_labels: bool = False  # the teacher's distribution replaces the label
    use_labels: bool = False  # the label is learned, whatever the objective does with other rows
    advantage: Tensor | None = None  # of the reward, with its weight; set by objectives that need it
    teacher_weight: float = 1.0  # of the teacher beside the reward; set with it
    is_measured: bool = True  # whether the student's entropy is computed, beside what the loss needs
    stops: tuple[int, ...] = ()  # the ids that end a turn: one event in a divergence, and which of them it is beside it

    def compare(self, log_p: Tensor, part: slice) -> Compared:
        assert self.teacher is not None
        return self.teacher.compare(log_p, part, self.stops)

    @torch.no_grad()
    def stopping(self, log_p: Tensor, log_q: Tensor, part: slice) -> dict[str, Tensor]:
        """How likely the student is to stop at each position, and the teacher among the events of `compare`."""
        if self.teacher is None or not self.stops:
            return {}
        return {
            "stop_student": log_p[:, list(self.stops)].exp().sum(-1),
            "stop_teacher": self.teacher.stopping(log_q, part, self.stops),
        }


class Signal:
    """Base class: the teacher has weight λ (`teacher_weight`), a reward has weight 1 − λ.

    Where a row carries a prompt for the teacher, the teacher reads that prompt in place of the student's."""

    teacher_weight: float = 1.0

    def __init__(self, teacher: Teacher | None = None):
        self.teacher = InContext(teacher) if teacher is not None else None
        self.domains = set(teacher.by_domain) if isinstance(teacher, RouterTeacher) else set[str]()

    def prepare(self, samples: list[Sample]) -> list[Sample]:
        return samples

    def compute(self, batch: Batch) -> SignalBatch:
        if all(s.use_labels for s in batch.samples):
            return SignalBatch(batch.target_tokens, use_labels=True)
        teacher = self.teacher.distribution(batch) if self.teacher is not None else None
        return SignalBatch(batch.target_tokens, teacher, batch.rollout_logprobs())

    def flops(self, samples: list[Sample]) -> float:
        """Floating-point operations of the teacher's one pass over the samples."""
        return self.teacher.flops([s for s in samples if not s.use_labels]) if self.teacher is not None else 0.0


class Labels(Signal):
    """The token in the data; in samples with soft labels, the distribution of `teacher` instead."""

    def compute(self, batch: Batch) -> SignalBatch:
        if all(s.use_labels for s in batch.samples):
            return super().compute(batch)
        soft = {s.soft_labels for s in batch.samples}
        if self.teacher is None and soft == {True}:  # they are read beside what an objective such as dft is for
            return SignalBatch(batch.target_tokens, use_labels=True)
        if self.teacher is None or soft == {False}:
            return SignalBatch(batch.target_tokens, None, batch.rollout_logprobs())
        if soft != {True}:
            raise ValueError("Samples with and without soft labels need separate batches: see micro_batches.")
        return replace(super().compute(batch), soft_labels=True)

    def flops(self, samples: list[Sample]) -> float:
        return super().flops([s for s in samples if s.soft_labels])


class TeacherSignal(Signal):
    """The teacher's distribution at every target."""

    def __init__(self, teacher: Teacher):
        super().__init__(teacher)


class Blend(Signal):
    """A reward for the whole reply minus its group's mean, blended with a teacher of weight λ if there is one.

    Only rollouts are rewarded. `scale_rewards` divides by the group's standard deviation, where that is not 0."""

    def __init__(
        self,
        reward: Callable[[Sample], float],
        teacher: Teacher | None = None,
        teacher_weight: float = 0.0,
        *,
        scale_rewards: bool = False,
    ):
        if teacher is None and teacher_weight > 0:
            raise ValueError("Without a teacher, teacher_weight must be 0.")
        super().__init__(teacher)
        self.reward, self.teacher_weight, self.scale_rewards = reward, teacher_weight, scale_rewards

    def prepare(self, samples: list[Sample]) -> list[Sample]:
        samples = [replace(s, reward=float(self.reward(s))) if s.logprobs is not None else s for s in samples]
        groups = [(s.group, s.prompt, s.domain) for s in samples]
        by_group: dict[object, list[float]] = {}
        for group, sample in zip(groups, samples, strict=True):
            if sample.reward is not None:
                by_group.setdefault(group, []).append(sample.reward)
        means = {group: fmean(rewards) for group, rewards in by_group.items()}
        spreads = {group: pstdev(rewards) or 1.0 for group, rewards in by_group.items() if self.scale_rewards}
        return [
            replace(s, advantage=((s.reward or 0.0) - means.get(group, 0.0)) / spreads.get(group, 1.0))
            for s, group in zip(samples, groups, strict=True)
        ]
