"""SFT, DFT and their anchored variants against the published formulas, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recovery.objectives import CrossEntropy
from recovery.recipes import objective_of, recipe
from recovery.signals import SignalBatch
from recovery.teachers import Part, TeacherLogprobs

WEIGHT = 0.1


def reference(name: str, logits: Tensor, labels: Tensor, base_logits: Tensor) -> Tensor:
    loss = F.cross_entropy(logits, labels, reduction="none")
    if name in ("dft", "asft"):
        probabilities = torch.softmax(logits, -1).gather(1, labels[:, None]).squeeze(1)
        loss = loss * probabilities.detach()
    if name in ("sft-anchored", "asft"):
        log_p, base = F.log_softmax(logits, -1), F.softmax(base_logits, -1)
        loss = loss + WEIGHT * F.kl_div(log_p, base, reduction="none").sum(-1)  # KL(base ‖ student)
    return loss


@pytest.mark.parametrize("name", ["sft", "dft", "sft-anchored", "asft"])
def test_the_loss_is_the_published_one(name: str) -> None:
    torch.manual_seed(3)
    logits, base = torch.randn(9, 6, dtype=torch.float64, requires_grad=True), 2 * torch.randn(9, 6).double()
    labels = torch.randint(6, (9,))
    teacher = _Fixed(base.log_softmax(-1)) if recipe(name).anchor else None
    terms = objective_of(recipe(name))(logits, SignalBatch(labels, teacher), slice(None))  # type: ignore[arg-type]
    expected = reference(name, logits, labels, base)
    torch.testing.assert_close(terms.loss, expected)
    (ours,), (theirs,) = (torch.autograd.grad(loss.sum(), logits) for loss in (terms.loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_the_anchor_alone_has_no_gradient_at_the_base() -> None:
    logits = torch.randn(5, 6, requires_grad=True)
    teacher = _Fixed(logits.detach().log_softmax(-1))
    signal = SignalBatch(torch.zeros(5, dtype=torch.long), teacher)  # type: ignore[arg-type]
    anchored, plain = (CrossEntropy(anchor=weight)(logits, signal, slice(None)).loss for weight in (5.0, 0.0))
    (difference,) = torch.autograd.grad((anchored - plain).sum(), logits)
    torch.testing.assert_close(difference, torch.zeros_like(difference), atol=1e-6, rtol=0)


class _Fixed(TeacherLogprobs):
    def __init__(self, logprobs: Tensor):
        self._logprobs = logprobs

    def logprobs(self, part: Part) -> Tensor:
        return self._logprobs[part]
