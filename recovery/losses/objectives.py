"""Objectives: the loss at each target, computed from one chunk of logits and the signal.

To add one, write a class with `prepare` (once per micro-batch, no gradient) and `__call__` (logits of a chunk →
`LossTerms`).
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from recovery.errors import RecoverError
from recovery.losses.chunked_loss import LossTerms
from recovery.losses.divergences import (
    ClipMode,
    clipped_divergence,
    divergence,
    entropy,
    forward_kl,
    reverse_kl,
    with_tail,
)
from recovery.samples import Batch
from recovery.signals import SignalBatch


class Objective(Protocol):
    @property
    def epochs(self) -> int: ...

    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch: ...

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms: ...


def _metrics(log_p: Tensor, signal: SignalBatch, part: slice) -> dict[str, Tensor]:
    """Return the metrics of every objective: the student's entropy, and its KL to the teacher if there is one."""
    with torch.no_grad():
        metrics = {"entropy": entropy(log_p)}
        if signal.teacher is not None:
            metrics["kl"] = reverse_kl(*signal.teacher.compare(log_p, part))
    return metrics


def label_loss(log_p: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
    """The cross-entropy of rows that learn their labels; it has no metrics, which describe the other rows."""
    return LossTerms(-log_p.gather(-1, signal.tokens[part, None]).squeeze(-1), {})


@dataclass(frozen=True)
class CrossEntropy:
    """−log π(label). With soft labels KL(teacher ‖ π): the expected gradient over labels sampled from the teacher,
    without their sampling noise.

    `dft` weights the loss by π(label), detached, which cancels the implicit reward 1/π of SFT.

    `anchor` adds that multiple of KL(teacher ‖ π), which keeps the student near a frozen base; with `dft` this is
    anchored SFT (ASFT) as published."""

    dft: bool = False
    anchor: float = 0.0
    epochs: int = 1

    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if self.anchor > 0 and signal.teacher is None and not signal.use_labels:
            raise RecoverError("An anchor needs the frozen base as its teacher. Name a teacher.")
        return signal

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        if signal.use_labels:
            return label_loss(log_p, signal, part)
        if signal.soft_labels:
            assert signal.teacher is not None
            kl = forward_kl(*signal.teacher.compare(log_p, part))
            return LossTerms(kl, {"entropy": entropy(log_p.detach())})
        chosen = log_p.gather(-1, signal.tokens[part, None]).squeeze(-1)
        loss = -chosen * chosen.detach().exp() if self.dft else -chosen
        if self.anchor > 0:
            assert signal.teacher is not None
            loss = loss + self.anchor * forward_kl(*signal.teacher.compare(log_p, part))
        return LossTerms(loss, _metrics(log_p, signal, part))


@dataclass(frozen=True)
class Divergence:
    """The exact divergence over the vocabulary: β = 1 reverse KL, 0 forward KL, in between Jensen–Shannon.

    A teacher that lists the log-probs of some tokens only is compared over those and one bucket for the rest. With
    `top_k` the vocabulary is reduced so for any teacher, to the *student's* k likeliest tokens.

    `clip` bounds what single tokens of the vocabulary (`zero`) or single positions (`scale`) add: a teacher that has
    read the solution is surest of a few tokens, which would otherwise outweigh all others."""

    beta: float = 1.0
    top_k: int | None = None
    clip: float | None = None
    clip_mode: ClipMode = "zero"
    epochs: int = 1

    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if signal.use_labels:
            return signal
        if signal.teacher is None:
            raise RecoverError("A full divergence needs a teacher. Name one with --teacher.")
        if teacher_weight != 1.0:
            raise RecoverError(
                "A full divergence takes no reward. Use the sampled estimator to blend teacher and reward."
            )
        return signal

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        if signal.use_labels:
            return label_loss(log_p, signal, part)
        assert signal.teacher is not None
        log_p, log_q = signal.teacher.compare(log_p, part)
        if self.top_k is not None:
            top = log_p.topk(min(self.top_k, log_p.shape[-1])).indices
            log_p, log_q = with_tail(log_p.gather(-1, top)), with_tail(log_q.gather(-1, top))
        clipped: dict[str, Tensor] = {}
        if self.clip is None:
            loss = divergence(log_p, log_q, self.beta)
        else:
            loss, is_clipped = clipped_divergence(log_p, log_q, self.beta, self.clip, self.clip_mode)
            clipped = {"clipped": is_clipped.to(log_p.dtype)}
        with torch.no_grad():
            is_kl = self.beta == 1.0 and self.clip is None
            metrics = {"entropy": entropy(log_p), "kl": loss.detach() if is_kl else reverse_kl(log_p, log_q)}
        return LossTerms(loss, metrics | clipped)


@dataclass(frozen=True)
class SampledGradient:
    """Policy gradient on the sampled token: −min(r A, clip(r) A), r = π / π_rollout.

    A_t = λ [log π_T(y_t) − log π_rollout(y_t)] + (1 − λ) [R − b], both parts detached. With `discount` γ > 0 the
    teacher's part becomes the discounted sum over the tokens from t on: Σ_{s ≥ t} γ^{s−t}.
    """

    clip: float = 0.2
    discount: float = 0.0
    epochs: int = 1

    @torch.no_grad()
    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if signal.use_labels:
            return signal
        if signal.rollout_logprobs is None:
            raise RecoverError(
                "The sampled estimator needs the student's own rollouts with their log-probs. "
                "Use cross-entropy or a full divergence on documents and conversations."
            )
        advantage = torch.zeros_like(signal.rollout_logprobs)
        if signal.teacher is not None and teacher_weight > 0:
            log_ratio = signal.teacher.target_logprobs(signal.tokens) - signal.rollout_logprobs
            advantage += teacher_weight * self._discounted(log_ratio, batch)
        if teacher_weight < 1:
            rewards = [(s.reward or 0.0) - s.baseline for s in batch.samples]
            advantage += (1 - teacher_weight) * batch.per_target(rewards)
        return replace(signal, advantage=advantage)

    def _discounted(self, log_ratio: Tensor, batch: Batch) -> Tensor:
        if self.discount == 0.0:
            return log_ratio
        counts = [s.target_count for s in batch.samples]
        parts = []
        for values in log_ratio.split(counts):
            total, reversed_sums = torch.zeros((), device=log_ratio.device), []
            for value in values.flip(0):
                total = value + self.discount * total
                reversed_sums.append(total)
            parts.append(torch.stack(reversed_sums[::-1]) if reversed_sums else values)
        return torch.cat(parts)

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        if signal.use_labels:
            return label_loss(log_p, signal, part)
        assert signal.advantage is not None
        assert signal.rollout_logprobs is not None
        chosen = log_p.gather(-1, signal.tokens[part, None]).squeeze(-1)
        ratio = (chosen - signal.rollout_logprobs[part]).exp()
        advantage = signal.advantage[part]
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        loss = -torch.minimum(ratio * advantage, clipped * advantage)
        with torch.no_grad():
            is_clipped = (ratio * advantage > clipped * advantage).to(logits.dtype)
            metrics = {"ratio": ratio, "ratio_clipped": is_clipped, **_metrics(log_p, signal, part)}
        return LossTerms(loss, metrics)
