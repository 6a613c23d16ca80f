import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.chunked_loss import Head, chunked_loss, token_logprobs
from recovery.objectives import CrossEntropy, Divergence, SampledGradient
from recovery.signals import SignalBatch
from recovery.teachers import Distribution

V, H = 13, 5


def problem(n: int, seed: int) -> tuple[torch.Tensor, Head, SignalBatch, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden = normal(n, H).requires_grad_()
    head = Head(normal(V, H).requires_grad_(), normal(V).requires_grad_(), softcap=3.0, scale=0.7)
    tokens = torch.randint(V, (n,), generator=generator)
    teacher = Distribution(normal(n, H), Head(normal(V, H)))
    signal = SignalBatch(tokens, teacher, rollout_logprobs=normal(n) - 2, advantage=normal(n))
    weights = torch.rand(n, generator=generator, dtype=torch.float64)
    return hidden, head, signal, weights


@pytest.mark.parametrize(
    "objective",
    [
        CrossEntropy(),
        CrossEntropy(dft=True),
        Divergence(1.0),
        Divergence(0.0),
        Divergence(0.3),
        CrossEntropy(anchor=0.5),
        SampledGradient(),
    ],
    ids=str,
)
@settings(deadline=None, max_examples=15)
@given(n=st.integers(1, 9), rows_per_chunk=st.integers(1, 10), seed=st.integers(0, 1000))
def test_value_and_gradients_do_not_depend_on_the_chunk(objective, n: int, rows_per_chunk: int, seed: int) -> None:  # type: ignore[no-untyped-def]
    hidden, head, signal, weights = problem(n, seed)
    assert head.bias is not None
    inputs = [hidden, head.weight, head.bias]
    loss, readings = chunked_loss(
        hidden, head, lambda logits, part: objective(logits, signal, part), weights, rows_per_chunk * V
    )
    whole = objective(head.logits(hidden), signal, slice(None))
    expected = (whole.loss * weights).sum()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(loss * 2, inputs), torch.autograd.grad(expected * 2, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    for name, values in whole.metrics.items():
        torch.testing.assert_close(readings[name], values)


def test_token_logprobs_are_those_of_the_whole_softmax() -> None:
    hidden, head, signal, _ = problem(7, 1)
    expected = torch.log_softmax(head.logits(hidden), -1).gather(-1, signal.tokens[:, None]).squeeze(-1)
    torch.testing.assert_close(token_logprobs(hidden, head, signal.tokens, 3 * V), expected.detach())
