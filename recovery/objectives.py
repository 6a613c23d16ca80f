"""Objectives: the loss at each target, computed from one chunk of logits and the signal.

To add one, write a class with `prepare` (once per micro-batch, no gradient) and `__call__` (logits of a chunk →
`LossTerms`).
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from recovery.chunked_loss import LossOfChunk, LossTerms
from recovery.divergences import ClipMode, clipped_divergence, divergence, entropy, forward_kl, reverse_kl
from recovery.errors import RecoverError
from recovery.samples import Batch
from recovery.signals import SignalBatch
from recovery.teachers import Compared


class Objective(Protocol):
    @property
    def epochs(self) -> int: ...

    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch: ...

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms: ...


def loss_of_chunk(objective: Objective, signal: SignalBatch, batch: Batch, teacher_weight: float) -> LossOfChunk:
    """Bind an objective to a micro-batch. Rows that learn their labels beside other rows have the cross-entropy in any
    case, without metrics, which describe the others."""
    if signal.use_labels:
        return lambda logits, part: LossTerms(-_chosen(torch.log_softmax(logits, dim=-1), signal, part), {})
    prepared = objective.prepare(signal, batch, teacher_weight)
    return lambda logits, part: objective(logits, prepared, part)


def _forward_kl(compared: Compared) -> Tensor:
    return forward_kl(compared.student, compared.teacher) + compared.stops


def _chosen(log_p: Tensor, signal: SignalBatch, part: slice) -> Tensor:
    return log_p.gather(-1, signal.tokens[part, None]).squeeze(-1)


@torch.no_grad()
def _metrics(log_p: Tensor, signal: SignalBatch, part: slice, compared: Compared | None = None) -> dict[str, Tensor]:
    """Return the student's entropy and, if there is a teacher, the KL to it and how likely both are to stop."""
    metrics = {"entropy": entropy(log_p)} if signal.is_measured else {}
    if compared is not None:
        kl = reverse_kl(compared.student, compared.teacher)
        metrics |= {"kl": kl, **signal.stopping(log_p, compared.teacher, part)}
    return metrics


def _with_advantage(signal: SignalBatch, batch: Batch, reward_weight: float) -> SignalBatch:
    return replace(signal, advantage=reward_weight * batch.per_target([s.advantage for s in batch.samples]))


def _policy_gradient(
    chosen: Tensor, rollout: Tensor, advantage: Tensor, clip: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """−min(r A, clip(r) A) with r = π / π_rollout of the sampled token, and the metrics of r."""
    ratio = (chosen - rollout).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip) if clip else ratio
    gain, bound = ratio * advantage, clipped * advantage
    metrics = {"ratio": ratio.detach(), "ratio_clipped": (gain > bound).detach().to(chosen.dtype)}
    return -torch.minimum(gain, bound), metrics


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
        if self.anchor > 0 and signal.teacher is None:
            raise RecoverError("An anchor needs the frozen base as its teacher. Name a teacher.")
        return signal

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        if signal.soft_labels:
            return LossTerms(_forward_kl(signal.compare(log_p, part)), _metrics(log_p, signal, part))
        chosen = _chosen(log_p, signal, part)
        loss = -chosen * chosen.detach().exp() if self.dft else -chosen
        compared = signal.compare(log_p, part) if signal.teacher is not None else None
        if self.anchor > 0:
            assert compared is not None
            loss = loss + self.anchor * _forward_kl(compared)
        return LossTerms(loss, _metrics(log_p, signal, part, compared))


@dataclass(frozen=True)
class Divergence:
    """The exact divergence over the vocabulary: β = 1 reverse KL, 0 forward KL, in between Jensen–Shannon.

    A teacher that lists the log-probs of some tokens only is compared over those and one bucket for the rest.

    Blended with a reward, it has weight λ, and the policy gradient of the reward (see `SampledGradient`) weight 1 − λ.
    Rows that the student did not sample have no reward.

    `clip` bounds what single tokens of the vocabulary (`zero`) or single positions (`scale`) add: a teacher that has
    read the solution is surest of a few tokens, which would otherwise outweigh all others. Which of the stops ends a
    reply (`Compared.stops`) is not clipped."""

    beta: float = 1.0
    clip: float = 0.0
    clip_mode: ClipMode = "zero"
    ratio_clip: float = 0.2
    epochs: int = 1

    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if signal.teacher is None:
            raise RecoverError("A full divergence needs a teacher. Name one with --teacher.")
        if teacher_weight < 1 and signal.rollout_logprobs is not None:
            signal = _with_advantage(signal, batch, 1 - teacher_weight)
        return replace(signal, teacher_weight=teacher_weight)

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        over_vocabulary = torch.log_softmax(logits, dim=-1)
        log_p, log_q, stops = signal.compare(over_vocabulary, part)
        stopping = signal.stopping(over_vocabulary, log_q, part)
        more: dict[str, Tensor] = {}
        if self.clip:
            loss, is_clipped = clipped_divergence(log_p, log_q, self.beta, self.clip, self.clip_mode)
            more = {"clipped": is_clipped.to(log_p.dtype)}
        else:
            loss = divergence(log_p, log_q, self.beta)
        with torch.no_grad():
            is_kl = self.beta == 1.0 and not self.clip
            metrics = {"entropy": entropy(over_vocabulary), "kl": loss.detach() if is_kl else reverse_kl(log_p, log_q)}
        loss = signal.teacher_weight * (loss + stops)
        if signal.advantage is not None:
            assert signal.rollout_logprobs is not None
            chosen = _chosen(over_vocabulary, signal, part)
            of_reward, of_ratio = _policy_gradient(
                chosen, signal.rollout_logprobs[part], signal.advantage[part], self.ratio_clip
            )
            loss, more = loss + of_reward, more | of_ratio
        return LossTerms(loss, metrics | more | stopping)


@dataclass(frozen=True)
class SampledGradient:
    """Policy gradient on the sampled token: −min(r A, clip(r) A), r = π / π_rollout.

    A_t = λ [log π_T(y_t) − log π_rollout(y_t)] + (1 − λ) [R − b], both parts detached. [R − b] may be divided by the
    standard deviation of R in its group.

    `anchor` adds that multiple of KL(π ‖ teacher), exact over the vocabulary: with rewards alone (λ = 0) the teacher is
    the frozen base, which the student is kept near.

    Where y_t ends the reply, A_t compares the events: log Σ_stop π_T − log Σ_stop π_rollout. Engines report the sampled
    id alone, so the rollout's probability of it is divided by the share that it has in the student's stop event now:
    exact at the first step after a draw. The ratio r stays that of the sampled id, as it is drawn. The mean of its
    gradient over the stop ids is that of the event, since A_t is the same for all of them. Which of them ends the reply
    (`Compared.stops`) is learned beside the sampled tokens, at all targets.
    """

    clip: float = 0.2
    anchor: float = 0.0
    epochs: int = 1

    @torch.no_grad()
    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if self.anchor > 0 and signal.teacher is None:
            raise RecoverError("An anchor needs the frozen base as its teacher. Name a teacher.")
        if signal.rollout_logprobs is None:
            raise RecoverError(
                "The sampled estimator needs the student's own rollouts with their log-probs. "
                "Use cross-entropy or a full divergence on documents and conversations."
            )
        return replace(_with_advantage(signal, batch, 1 - teacher_weight), teacher_weight=teacher_weight)

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        assert signal.advantage is not None
        assert signal.rollout_logprobs is not None
        chosen = _chosen(log_p, signal, part)
        advantage, compared = signal.advantage[part], None
        if signal.teacher is not None:
            compared = signal.compare(log_p, part)
        if compared is not None and signal.teacher_weight > 0:
            advantage = advantage + signal.teacher_weight * self._log_ratio(chosen.detach(), signal, part, compared)
        loss, metrics = _policy_gradient(chosen, signal.rollout_logprobs[part], advantage, self.clip)
        if compared is not None:
            loss = loss + (self.anchor + signal.teacher_weight) * compared.stops
            if self.anchor > 0:
                loss = loss + self.anchor * reverse_kl(compared.student, compared.teacher)
        return LossTerms(loss, metrics | _metrics(log_p, signal, part, compared))

    @staticmethod
    @torch.no_grad()
    def _log_ratio(chosen: Tensor, signal: SignalBatch, part: slice, compared: Compared) -> Tensor:
        """log π_T − log π_rollout of the events that were sampled."""
        assert signal.teacher is not None
        assert signal.rollout_logprobs is not None
        ours, theirs = (signal.teacher.at_tokens(x, signal.tokens[part], part, signal.stops) for x in compared[:2])
        return theirs - (signal.rollout_logprobs[part] + (ours - chosen))
