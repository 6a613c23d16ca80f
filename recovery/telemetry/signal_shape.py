"""The shape of the signal: does every token pull, do they pull one way, does one of them pull the cart?

Each target token pulls on its own logits with a vector g_t, the loss's gradient there. Three numbers
describe the cloud:

    density        share of tokens with ‖g_t‖ > 0.01 (a probability moved by a percent)
    bias           ‖Σ g_t‖ / Σ ‖g_t‖: 0 when the pulls cancel, 1 when all point one way
    concentration  share of Σ ‖g_t‖² that the strongest 1 % of the tokens carry
"""

import math
from dataclasses import dataclass

from torch import Tensor

FELT = 0.01


@dataclass(frozen=True)
class Geometry:
    density: float = 0.0
    bias: float = 0.0
    concentration: float = 0.0


def geometry(pulls: Tensor | None = None, pull_sum: Tensor | None = None) -> Geometry:
    """From each token's pull [tokens] and their vector sum [vocabulary]; all zero where nothing pulls."""
    if pulls is None or pull_sum is None:
        return Geometry()
    lengths = pulls.double()
    squared = lengths**2
    total = float(squared.sum())
    if total == 0 or not math.isfinite(total):
        return Geometry()
    return Geometry(
        density=float((lengths > FELT).double().mean()),
        bias=float(pull_sum.double().norm() / lengths.sum()),
        concentration=float(squared.topk(max(1, pulls.numel() // 100)).values.sum()) / total,
    )
