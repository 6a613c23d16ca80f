"""The output head, and losses over the vocabulary computed a chunk of positions at a time.

Tensors of [positions × vocabulary] are the largest in training (1,024 × 151,936 floats are 622 MB, and several are
needed). Here only one chunk of them exists at a time: the gradient with respect to the hidden states is computed in
the forward pass, chunk by chunk, and only scaled in the backward pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recovery.distributed import whole

# Positions × vocabulary of one chunk: 48 MiB in float32. Below 32 MiB glibc does not return freed memory but fragments
# it, and peak memory is three times as high. A GPU, where launching a chunk costs more than computing it, takes larger
# chunks.
CHUNK_ELEMENTS = 12 * 2**20
CHUNK_ELEMENTS_ON_GPU = 40 * 2**20
ROWS_OF_PRODUCT = 4096  # of the head, so that the product of a chunk stays in the cache


@dataclass(frozen=True)
class Head:
    """The output head: maps hidden states to logits, including the scaling and capping that some families apply."""

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None  # Gemma: cap · tanh(logits / cap)
    scale: float = 1.0  # Cohere multiplies, Granite divides

    @classmethod
    def from_model(cls, causal_model: Any) -> "Head":
        output = causal_model.get_output_embeddings()
        config = causal_model.config.get_text_config()
        # Cohere; Falcon-H1; Muse. Granite divides by `logits_scaling`, HyperCLOVA X multiplies by it.
        names = ("logit_scale", "lm_head_multiplier", "output_multiplier")
        multiplied = next((float(v) for n in names if (v := getattr(config, n, None)) is not None), 1.0)
        scaling = float(getattr(config, "logits_scaling", None) or 1.0)
        divided = 1 / scaling if config.model_type.startswith("hyperclovax") else scaling
        # Gemma; RecurrentGemma; xLSTM
        caps = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
        softcap = next((float(v) for n in caps if (v := getattr(config, n, None)) is not None), None)
        bias = None if output.bias is None else whole(output.bias)
        return cls(whole(output.weight), bias, softcap, multiplied / divided)

    def project(self, hidden: Tensor) -> Tensor:
        logits = hidden @ self.weight.to(hidden.dtype).T
        return logits if self.bias is None else logits + self.bias.to(logits.dtype)

    def finish(self, projected: Tensor) -> Tensor:
        logits = projected * self.scale if self.scale != 1.0 else projected
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.finish(at_least_float32(self.project(hidden)))


@dataclass(frozen=True)
class LossTerms:
    """An objective's result for a chunk of positions: the loss, and metrics to record (no gradient)."""

    loss: Tensor  # [positions]
    metrics: dict[str, Tensor]  # each [positions]


LossOfChunk = Callable[[Tensor, slice], LossTerms]


def at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def chunks(positions: int, vocabulary: int, elements: int) -> list[slice]:
    size = max(1, elements // vocabulary)
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]


def chunked_loss(
    hidden: Tensor,
    head: Head,
    loss_of: LossOfChunk,
    weights: Tensor,
    elements: int | None = None,
    *,
    with_shape: bool = True,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return Σ weights · loss over all positions, differentiable in the hidden states and the head, and the metrics.

    Each metric has one entry per position. `with_shape` adds two to the objective's own: `logit_grad_norm`, the norm of
    the loss gradient on each position's logits, and `logit_grad_sum`, the vector sum of these gradients over positions
    [vocabulary] (see `recovery.telemetry`).
    """
    metrics: dict[str, Tensor] = {}
    elements = elements or _chunk_elements(hidden)
    loss = _ChunkedLoss.apply(hidden, head.weight, head.bias, head, loss_of, weights, elements, with_shape, metrics)
    return loss, metrics


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head: Head,
        loss_of: LossOfChunk,
        weights: Tensor,
        elements: int,
        with_shape: bool,
        metrics: dict[str, Tensor],
    ) -> Tensor:
        device = hidden.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        total = torch.zeros((), dtype=at_least_float32(hidden[:0]).dtype, device=hidden.device)
        hidden_grad = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        weight_grad = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        bias_grad = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        collected: dict[str, list[Tensor]] = {}
        grad_sum = torch.zeros(weight.shape[0], dtype=total.dtype, device=hidden.device)
        with torch.autocast(device, enabled=False):
            weight_cast = weight.detach().to(compute)
            inner = Head(weight_cast, None if bias is None else bias.detach(), head.softcap, head.scale)
            for part in chunks(hidden.shape[0], weight.shape[0], elements):
                states = hidden[part].detach().to(compute)
                projected = at_least_float32(inner.project(states)).requires_grad_()
                with torch.enable_grad():
                    terms = loss_of(inner.finish(projected), part)
                    loss = (terms.loss * weights[part]).sum()
                (grad,) = torch.autograd.grad(loss, projected)
                total += loss.detach()
                for name, values in terms.metrics.items():
                    collected.setdefault(name, []).append(values.detach())
                if with_shape:
                    collected.setdefault("logit_grad_norm", []).append(grad.norm(dim=-1))
                    grad_sum += grad.sum(0)
                if bias_grad is not None:
                    bias_grad += grad.sum(0).to(bias_grad.dtype)
                grad = grad.to(compute)
                if hidden_grad is not None:
                    hidden_grad[part] = (grad @ weight_cast).to(hidden.dtype)
                if weight_grad is not None:
                    _add_product(weight_grad, grad.T, states)
                del projected, grad, terms, loss  # free the memory before the next chunk
        metrics.update({name: torch.cat(parts) for name, parts in collected.items()})
        if with_shape:
            metrics["logit_grad_sum"] = grad_sum
        ctx.grads = (hidden_grad, weight_grad, bias_grad)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        grads, ctx.grads = ctx.grads, None
        scaled = [None if g is None else g.mul_(upstream.to(g.dtype)) for g in grads]
        return *scaled, *[None] * 6  # of head, loss, weights, elements, with_shape and metrics


def _chunk_elements(hidden: Tensor) -> int:
    return CHUNK_ELEMENTS_ON_GPU if hidden.device.type == "cuda" else CHUNK_ELEMENTS


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to `total` in place where the dtypes allow, or else a block at a time: the gradient is as large as the
    head, and a copy of it for every chunk took a tenth of a training step, or more."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.is_cuda and total.dtype == torch.float32 and a.itemsize == 2:  # accumulates in float32
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        for rows, sums in zip(a.split(ROWS_OF_PRODUCT), total.split(ROWS_OF_PRODUCT), strict=True):
            sums += rows @ b


@torch.no_grad()
def token_logprobs(hidden: Tensor, head: Head, tokens: Tensor, elements: int | None = None) -> Tensor:
    """Return the log-prob of each position's token [positions], computed for one chunk of positions at a time."""
    parts = [
        torch.log_softmax(head.logits(hidden[part]), dim=-1).gather(-1, tokens[part, None]).squeeze(-1)
        for part in chunks(hidden.shape[0], head.weight.shape[0], elements or _chunk_elements(hidden))
    ]
    return torch.cat(parts) if parts else torch.zeros(0, device=hidden.device)
