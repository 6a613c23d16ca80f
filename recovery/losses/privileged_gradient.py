"""π-distill: one model is trained with what a teacher reads (T) and without it (S), on replies sampled with it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recovery.errors import RecoverError
from recovery.losses.chunked_loss import LossTerms
from recovery.losses.divergences import entropy, forward_kl, reverse_kl
from recovery.losses.objectives import label_loss
from recovery.samples import Batch
from recovery.signals import SignalBatch


@dataclass(frozen=True)
class PrivilegedGradient:
    """−2 α [r A − β KL(T ‖ sg S)] at a token of T's row, −2 (1 − α) [r A − β KL(sg T ‖ S)] at one of S's row.

    sg marks what is taken as a constant: no gradient goes through it. r = π / sg π_rollout of the sampled token: its
    value is 1 on T's rows, and S / sg T on S's rows. A is the reward minus its group's mean, β is `kl_weight`. Both
    rows of a reply have the same tokens, so the mean over all targets is −α J_T − (1 − α) J_S. The ratio is that of
    each token, not of the whole reply, whose variance grows with its length."""

    alpha: float = 0.5
    kl_weight: float = 0.1
    epochs: int = 1

    @torch.no_grad()
    def prepare(self, signal: SignalBatch, batch: Batch, teacher_weight: float) -> SignalBatch:
        if signal.use_labels:
            return signal
        if signal.rollout_logprobs is None or signal.teacher is None:
            raise RecoverError(
                "This recipe needs rollouts with their log-probs, and the student itself as its teacher. "
                "Choose --teacher live."
            )
        advantage = batch.per_target([(s.reward or 0.0) - s.baseline for s in batch.samples])
        return replace(signal, advantage=advantage, privileged=batch.samples[0].privileged is True)

    def __call__(self, logits: Tensor, signal: SignalBatch, part: slice) -> LossTerms:
        log_p = torch.log_softmax(logits, dim=-1)
        if signal.use_labels:
            return label_loss(log_p, signal, part)
        assert signal.advantage is not None
        assert signal.rollout_logprobs is not None
        chosen = log_p.gather(-1, signal.tokens[part, None]).squeeze(-1)
        ratio = (chosen - signal.rollout_logprobs[part]).exp()
        ours, theirs = signal.compare(log_p, part)  # of the same weights behind the other prompt, without a gradient
        kl = reverse_kl(ours, theirs) if signal.privileged else forward_kl(ours, theirs)
        weight = self.alpha if signal.privileged else 1 - self.alpha
        metrics = {"entropy": entropy(log_p.detach()), "kl": kl.detach(), "ratio": ratio.detach()}
        metrics |= signal.stopping(log_p, theirs, part)
        return LossTerms(2 * weight * (self.kl_weight * kl - ratio * signal.advantage[part]), metrics)
