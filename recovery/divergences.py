"""Divergences between the next-token distributions of student and teacher, per position, and what counts as one event.

All ids that end a turn are one event. A student that ends its replies with one id and a teacher that ends them with
another agree on where a reply ends. Id by id they would differ most just there, and the student would learn not to end.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

ClipMode = Literal["zero", "scale"]

# The log-prob of an id whose probability was given to another. Its exp is 0, and unlike −∞ it leaves gradients finite.
NEVER = -1e4


class _ExpectedLogRatio(torch.autograd.Function):
    """Σ p (log p − log q); a token with p = 0 adds nothing, whatever its q.

    A custom backward pass halves the number of stored [positions × vocabulary] tensors, which dominate memory."""

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, log_q: Tensor) -> Tensor:
        p = log_p.exp()
        ratio = (log_p - log_q).masked_fill_(p == 0, 0.0)
        ctx.save_for_backward(p, ratio)
        return (p.unsqueeze(-2) @ ratio.unsqueeze(-1)).squeeze(-1).squeeze(-1)  # without storing the products

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        p, ratio = ctx.saved_tensors
        up = upstream.unsqueeze(-1)
        needs_p, needs_q = ctx.needs_input_grad
        return torch.addcmul(p, p, ratio).mul_(up) if needs_p else None, p * -up if needs_q else None


def reverse_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(student ‖ teacher) of log-probs [..., vocabulary]: mode-seeking, the loss of on-policy distillation."""
    return _ExpectedLogRatio.apply(student, teacher)


def forward_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher ‖ student): mode-covering, the loss of cross-entropy on soft labels."""
    return _ExpectedLogRatio.apply(teacher, student)


def divergence(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """Generalised Jensen–Shannon divergence: β KL(T‖M) + (1−β) KL(S‖M) with M = βT + (1−β)S.

    It vanishes at both ends, so β = 0 means KL(T‖S) and β = 1 means KL(S‖T): the limits after division by β and 1−β.
    """
    return _generalised(student, teacher, beta, _ExpectedLogRatio.apply)


def _generalised(student: Tensor, teacher: Tensor, beta: float, kl: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    if beta == 0.0:
        return kl(teacher, student)
    if beta == 1.0:
        return kl(student, teacher)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * kl(teacher, mixture) + (1 - beta) * kl(student, mixture)


def _terms(log_p: Tensor, log_q: Tensor) -> Tensor:
    """What each token adds to the KL, which may be negative; a token with p = 0 adds nothing, whatever its q."""
    p = log_p.exp()
    return p * (log_p - log_q).masked_fill(p == 0, 0.0)


def clipped_divergence(
    student: Tensor, teacher: Tensor, beta: float, clip: float, mode: ClipMode
) -> tuple[Tensor, Tensor]:
    """Return the clipped divergence, and at which positions the clip had an effect.

    `zero` bounds what each token of the vocabulary adds: a bounded token has no gradient. Only positive terms are
    bounded, so the sum can fall below zero. `scale` multiplies the loss of a position by min(1, clip / loss), without
    a gradient through the factor: the direction of the gradient stays."""
    if mode == "zero":
        terms = _generalised(student, teacher, beta, _terms)
        return terms.clamp(max=clip).sum(-1), (terms > clip).any(-1)
    loss = divergence(student, teacher, beta)
    return loss * (clip / loss.detach().clamp(min=clip)), loss > clip


def entropy(log_p: Tensor) -> Tensor:
    return -log_p.exp().mul_(log_p).nansum(-1)  # 0 · −∞ counts as 0


def with_tail(log_p: Tensor) -> Tensor:
    """Append one bucket to the log-probs of some tokens [..., k]: the total probability of all other tokens."""
    top = torch.logsumexp(log_p, dim=-1, keepdim=True)
    # Rounding can lift the sum to 1 or above; the tail then has no weight, but its logarithm must be finite.
    smallest = torch.finfo(log_p.dtype).eps
    return torch.cat([log_p, torch.log(-torch.expm1(top.clamp(max=-smallest)))], dim=-1)


class _MergedColumns(torch.autograd.Function):
    """The first of these columns has their total probability, the others have none.

    A custom backward pass stores the columns alone, not tensors of [positions × vocabulary]."""

    @staticmethod
    def forward(ctx: Any, log_p: Tensor, columns: Tensor) -> Tensor:
        parts = log_p[..., columns]
        total = parts.logsumexp(-1, keepdim=True)
        ctx.save_for_backward((parts - total).exp(), columns)
        others = torch.full_like(parts[..., 1:], NEVER)
        return log_p.index_copy(-1, columns, torch.cat([total, others], dim=-1))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        shares, columns = ctx.saved_tensors
        return upstream.index_copy(-1, columns, shares * upstream[..., columns[:1]]), None


def merge_stops(log_p: Tensor, stops: Sequence[int]) -> Tensor:
    """Merge the columns `stops` of log-probs over the vocabulary [positions, vocabulary] into the first of them."""
    return log_p if len(stops) < 2 else _MergedColumns.apply(log_p, torch.tensor(stops, device=log_p.device))


def merge_listed_stops(log_p: Tensor, is_stop: Tensor) -> Tensor:
    """Merge those of the listed tokens [positions, listed] that are stops into the first of them in each row."""
    total = log_p.masked_fill(~is_stop, NEVER).logsumexp(-1, keepdim=True)
    is_first = is_stop & (is_stop.cumsum(-1) == 1)
    return torch.where(is_first, total, log_p.masked_fill(is_stop, NEVER))


def identity_of_stops(log_p: Tensor, log_q: Tensor) -> Tensor:
    """What merging leaves out of KL(q ‖ p), from the log-probs of the stops [positions, stops]: which of them it is.

    By the chain rule the KL is that of the merged events and q(stop) times the KL among the stops."""
    among = log_q - log_q.logsumexp(-1, keepdim=True).clamp(min=NEVER) - log_p.log_softmax(-1)
    q = log_q.exp()
    return (q * among.masked_fill(q == 0, 0.0)).sum(-1)


def is_in(tokens: Tensor, stops: Sequence[int]) -> Tensor:
    return torch.isin(tokens, torch.tensor(stops, dtype=tokens.dtype, device=tokens.device))
