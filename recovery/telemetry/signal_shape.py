"""The shape of the training signal: how many tokens carry it, how aligned they are, and how concentrated it is.

Each target token has a loss gradient g_t on its own logits. Three numbers describe these vectors:

    density        share of tokens with ‖g_t‖ > 0.01 (a probability moved by a percent)
    bias           ‖Σ g_t‖ / Σ ‖g_t‖: 0 when the gradients cancel, 1 when all have one direction
    concentration  share of Σ ‖g_t‖² that the strongest 1 % of the tokens carry
"""

import math
from dataclasses import dataclass

from torch import Tensor

MIN_ACTIVE_NORM = 0.01


@dataclass(frozen=True)
class SignalShape:
    density: float = 0.0
    bias: float = 0.0
    concentration: float = 0.0


def signal_shape(grad_norms: Tensor, grad_sum: Tensor) -> SignalShape:
    """Compute the shape from each token's gradient norm [tokens] and the gradients' vector sum [vocabulary].

    All three numbers are zero if there is no gradient."""
    norms = grad_norms.double()
    squared = norms**2
    total = float(squared.sum())
    if total == 0 or not math.isfinite(total):
        return SignalShape()
    return SignalShape(
        density=float((norms > MIN_ACTIVE_NORM).double().mean()),
        bias=float(grad_sum.double().norm() / norms.sum()),
        concentration=float(squared.topk(max(1, grad_norms.numel() // 100)).values.sum()) / total,
    )
