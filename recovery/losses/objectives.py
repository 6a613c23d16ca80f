"""What the signal does to the student: a loss at each state, written on one chunk of logits.

To add one: a class with `prepare` (once a micro-batch, no gradient) and `__call__` (logits of a chunk → `Terms`).
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from recovery.batch import Batch
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import Terms
from recovery.losses.divergences import divergence, entropy, forward_kl, reverse_kl, with_tail
from recovery.signals import SignalBatch


class Objective(Protocol):
    @property
    def epochs(self) -> int: ...

    def prepare(self, said: SignalBatch, batch: Batch, share: float) -> SignalBatch: ...

    def __call__(self, logits: Tensor, said: SignalBatch, part: slice) -> Terms: ...


def _read(log_p: Tensor, said: SignalBatch, part: slice) -> dict[str, Tensor]:
    """What is recorded of a state under any objective: the student's entropy and its KL to the teacher."""
    with torch.no_grad():
        readings = {"entropy": entropy(log_p)}
        if said.teacher is not None:
            readings["kl"] = reverse_kl(log_p, said.teacher.logprobs(part))
    return readings


@dataclass(frozen=True)
class CrossEntropy:
    """−log π(label). Where the teacher is asked instead (soft rows), KL(teacher ‖ π): over labels that it would draw at
    that state the same gradient on average, without their luck.

    `dft` weights it by π(label), held constant: the label's own reward is no longer 1/π.

    `anchor` adds so much KL(π ‖ teacher), which holds the student near a frozen base while it learns."""

    dft: bool = False
    anchor: float = 0.0
    epochs: int = 1

    def prepare(self, said: SignalBatch, batch: Batch, share: float) -> SignalBatch:
        if self.anchor > 0 and said.teacher is None:
            raise RecoverError("an anchor needs the frozen base that it holds to: name a teacher")
        return said

    def __call__(self, logits: Tensor, said: SignalBatch, part: slice) -> Terms:
        log_p = torch.log_softmax(logits, dim=-1)
        if said.soft:
            assert said.teacher is not None
            away = forward_kl(log_p, said.teacher.logprobs(part))
            return Terms(away, {"entropy": entropy(log_p.detach())})
        chosen = log_p.gather(-1, said.tokens[part, None]).squeeze(-1)
        loss = -chosen * chosen.detach().exp() if self.dft else -chosen
        if self.anchor > 0:
            assert said.teacher is not None
            away = reverse_kl(log_p, said.teacher.logprobs(part))
            readings = {"entropy": entropy(log_p.detach()), "kl": away.detach()}
            return Terms(loss + self.anchor * away, readings)
        return Terms(loss, _read(log_p, said, part))


@dataclass(frozen=True)
class Divergence:
    """The exact expectation over the vocabulary: β = 1 reverse KL, 0 forward KL, between them Jensen–Shannon.

    With `top_k` the vocabulary is coarsened to the *student's* k likeliest tokens and one bucket for all the rest:
    what a teacher that tells only some log-probs can be asked. The teacher's own top k would be unstable for the
    reverse KL: what the student says and the teacher's list lacks would count for nothing."""

    beta: float = 1.0
    top_k: int | None = None
    epochs: int = 1

    def prepare(self, said: SignalBatch, batch: Batch, share: float) -> SignalBatch:
        if said.teacher is None:
            raise RecoverError("a full divergence needs a teacher: name one with --teacher")
        if share != 1.0:
            raise RecoverError("a full divergence takes no reward: blend teacher and reward with the sampled estimator")
        return said

    def __call__(self, logits: Tensor, said: SignalBatch, part: slice) -> Terms:
        assert said.teacher is not None
        log_p = torch.log_softmax(logits, dim=-1)
        if self.top_k is not None:
            top = log_p.topk(min(self.top_k, log_p.shape[-1])).indices
            log_p = with_tail(log_p.gather(-1, top))
            log_q = with_tail(said.teacher.logprobs_of(part, top))
        else:
            log_q = said.teacher.logprobs(part)
        loss = divergence(log_p, log_q, self.beta)
        with torch.no_grad():
            kl = loss.detach() if self.beta == 1.0 else reverse_kl(log_p, log_q)
            readings = {"entropy": entropy(log_p), "kl": kl}
        return Terms(loss, readings)


@dataclass(frozen=True)
class SampledGradient:
    """Policy gradient on the sampled token: −min(r A, clip(r) A), r = π / π_rollout.

    A_t = λ [log π_T(y_t) − log π_rollout(y_t)] + (1 − λ) [R − b], both parts constants. With
    `discount` γ > 0 the teacher's part also credits what followed: Σ_{s ≥ t} γ^{s−t} of it.
    """

    clip: float = 0.2
    discount: float = 0.0
    epochs: int = 1

    @torch.no_grad()
    def prepare(self, said: SignalBatch, batch: Batch, share: float) -> SignalBatch:
        if said.rollout_logprobs is None:
            raise RecoverError(
                "the sampled estimator needs states that the student itself wrote, with their log-probs; "
                "use cross-entropy or a full divergence on documents and conversations"
            )
        advantage = torch.zeros_like(said.rollout_logprobs)
        if said.teacher is not None and share > 0:
            liked = said.teacher.of_tokens(said.tokens) - said.rollout_logprobs
            advantage += share * self._discounted(liked, batch)
        if share < 1:
            gained = [(s.reward or 0.0) - s.baseline for s in batch.sequences]
            advantage += (1 - share) * batch.per_target(gained)
        return replace(said, advantage=advantage)

    def _discounted(self, liked: Tensor, batch: Batch) -> Tensor:
        if self.discount == 0.0:
            return liked
        counts = [s.target_count for s in batch.sequences]
        parts = []
        for values in liked.split(counts):
            total, backwards = torch.zeros((), device=liked.device), []
            for value in values.flip(0):
                total = value + self.discount * total
                backwards.append(total)
            parts.append(torch.stack(backwards[::-1]) if backwards else values)
        return torch.cat(parts)

    def __call__(self, logits: Tensor, said: SignalBatch, part: slice) -> Terms:
        assert said.advantage is not None
        assert said.rollout_logprobs is not None
        log_p = torch.log_softmax(logits, dim=-1)
        chosen = log_p.gather(-1, said.tokens[part, None]).squeeze(-1)
        ratio = (chosen - said.rollout_logprobs[part]).exp()
        advantage = said.advantage[part]
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        loss = -torch.minimum(ratio * advantage, clipped * advantage)
        with torch.no_grad():
            held_back = (ratio * advantage > clipped * advantage).to(logits.dtype)
            readings = {"ratio": ratio, "ratio_clipped": held_back, **_read(log_p, said, part)}
        return Terms(loss, readings)
