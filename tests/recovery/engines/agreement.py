"""Whether an engine's log-probs and samples are those of the student's modules."""

import torch

from recovery.engines import Engine, Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student


def gap(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """The largest difference; lengths must be equal."""
    return max(abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True))


def assert_log_probs_agree(
    student: Student, engine: Engine, prompts: list[list[int]], sampling: Sampling, within: float = 1e-4
) -> list[Generation]:
    """While sampling and while scoring; returns what was sampled."""
    replies = engine.generate(prompts, sampling)
    rows = [prompt + reply.tokens for prompt, reply in zip(prompts, replies, strict=True)]
    own = TransformersEngine(student).logprobs(rows)
    while_sampling = [row[-len(reply.tokens) :] for row, reply in zip(own, replies, strict=True)]
    assert gap([reply.logprobs for reply in replies], while_sampling) < within
    assert gap(engine.logprobs(rows), own) < within
    return replies


def assert_samples_follow_the_model(student: Student, engine: Engine, draws: int = 2000) -> None:
    prompt = [1, 70, 80]
    replies = engine.generate([prompt] * draws, Sampling(1, seed=3))
    with torch.no_grad():
        expected = draws * torch.softmax(student.model(torch.tensor([prompt])).logits[0, -1].float(), -1)
    observed = torch.bincount(torch.tensor([reply.tokens[0] for reply in replies]), minlength=len(expected))
    frequent = expected > 5
    chi_square = float(((observed - expected)[frequent] ** 2 / expected[frequent]).sum())
    freedom = int(frequent.sum())
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5
