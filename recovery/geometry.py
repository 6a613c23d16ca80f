"""The shape of the signal: does every token pull, do they pull one way, does one of them pull the cart?

Each target token pulls on its own logits with a vector g_t, the loss's gradient there. Three numbers
describe the cloud:

    density        share of tokens with ‖g_t‖ > 0.01 (a probability moved by a percent)
    bias           ‖Σ g_t‖ / Σ ‖g_t‖: 0 when the pulls cancel, 1 when all point one way
    concentration  share of Σ ‖g_t‖² that the strongest 1 % of the tokens carry
"""

from dataclasses import dataclass

import torch
from torch import Tensor

FELT = 0.01


@dataclass(frozen=True)
class Geometry:
    density: float
    bias: float
    concentration: float


def geometry(pulls: Tensor, pull_sum: Tensor) -> Geometry:
    """From each token's pull [tokens] (unweighted) and their vector sum [vocabulary]."""
    squared = pulls.double() ** 2
    strongest = squared.topk(max(1, pulls.numel() // 100)).values.sum()
    total, length = squared.sum(), pulls.double().sum()
    if not torch.isfinite(total) or total == 0:
        return Geometry(0.0, 0.0, 0.0)
    return Geometry(
        density=float((pulls > FELT).double().mean()),
        bias=float(pull_sum.double().norm() / length),
        concentration=float(strongest / total),
    )
