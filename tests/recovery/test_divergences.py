import math

import pytest
import torch

from recovery.divergences import ClipMode, clipped_divergence, entropy, reverse_kl
from recovery.objectives import Divergence
from recovery.signals import SignalBatch
from tests.recovery.fixed_teacher import FixedTeacher


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_a_token_of_zero_student_probability_adds_nothing_to_the_reverse_kl() -> None:
    student, teacher = logs(0.5, 0.5, 0.0), logs(0.25, 0.25, 0.5)
    assert float(reverse_kl(student, teacher)) == pytest.approx(math.log(2))
    assert float(entropy(student)) == pytest.approx(math.log(2))


MODES: list[ClipMode] = ["zero", "scale"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_tokens_of_zero_probability_leave_gradients_finite(beta: float, mode: ClipMode) -> None:
    logits = torch.tensor([[0.0, 1.0, -1e4]], requires_grad=True)
    teacher = torch.tensor([[0.0, -1e4, 1.0]]).log_softmax(-1)
    loss, _ = clipped_divergence(logits.log_softmax(-1), teacher, beta, 0.05, mode)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("mode", MODES)
def test_the_objective_reports_the_share_of_clipped_positions(mode: ClipMode) -> None:
    generator = torch.Generator().manual_seed(1)
    logits, teacher = (3 * torch.randn(4, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    logits = torch.cat([logits, teacher])  # at the last four positions both agree
    signal = SignalBatch(torch.zeros(8, dtype=torch.long), FixedTeacher(torch.cat([teacher, teacher]).log_softmax(-1)))  # type: ignore[arg-type]
    terms = Divergence(0.0, clip=0.05, clip_mode=mode)(logits, signal, slice(None))
    assert terms.metrics["clipped"].tolist() == [1.0] * 4 + [0.0] * 4
    assert "clipped" not in Divergence(0.0)(logits, signal, slice(None)).metrics
    unclipped = Divergence(1.0)(logits, signal, slice(None)).metrics["kl"]
    torch.testing.assert_close(terms.metrics["kl"], unclipped)  # the recorded KL is the whole one
