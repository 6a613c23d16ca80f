"""π-distill against the published formula, values and gradients, on both rows of each reply."""

import pytest
import torch
import torch.nn.functional as F

from recovery.divergences import merge_stops
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.objectives import PrivilegedGradient
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Blend, TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import LiveTeacher
from recovery.train import Plan, train
from tests.gradients import gradient_of_step

BARE, SHOWN = [20, 21, 22], [30, 31, 32, 33, 34]
REPLIES = [[40, 41, 42, 43], [50, 51], [60, 61, 62]]
REWARDS = {40: 1.0, 50: 0.0, 60: 1.0}


def log_probs(student: Student, prompt: list[int], reply: list[int]) -> torch.Tensor:
    logits = student.causal(input_ids=torch.tensor([prompt + reply])).logits[0]
    return F.log_softmax(logits, -1)[len(prompt) - 1 : -1]


def rows(student: Student) -> list[Sample]:
    """Each reply twice, with the log-probs that the model with the context had when it sampled it."""
    samples = []
    for reply in REPLIES:
        sampled = log_probs(student, SHOWN, reply).gather(1, torch.tensor(reply)[:, None]).squeeze(1)
        for own, other, privileged in ((SHOWN, BARE, True), (BARE, SHOWN, False)):
            targets = [False] * len(own) + [True] * len(reply)
            logprobs = sampled.detach().tolist()
            samples.append(
                Sample(
                    own + reply,
                    targets,
                    logprobs,
                    0,
                    teacher_prompt=other,
                    privileged=privileged,
                    prompt_length=len(own),
                )
            )
    return samples


def reward(sample: Sample) -> float:
    return REWARDS[sample.tokens[sample.targets.index(True)]]


def reference(student: Student, alpha: float, beta: float) -> torch.Tensor:
    """−α J_T − (1 − α) J_S, a mean over the replies' tokens."""
    baseline, total, count = sum(REWARDS.values()) / 3, torch.zeros((), dtype=torch.float64), 0
    for reply in REPLIES:
        t, s = log_probs(student, SHOWN, reply), log_probs(student, BARE, reply)
        chosen = torch.tensor(reply)[:, None]
        advantage = REWARDS[reply[0]] - baseline
        events_t, events_s = (merge_stops(row, student.stops) for row in (t, s))
        kl_t = (events_t.exp() * (events_t - events_s.detach())).sum(-1)  # KL(T ‖ sg S)
        kl_s = (events_t.detach().exp() * (events_t.detach() - events_s)).sum(-1)  # KL(sg T ‖ S)
        sampled = t.gather(1, chosen).squeeze(1)
        j_t = (sampled - sampled.detach()).exp() * advantage - beta * kl_t
        j_s = (s.gather(1, chosen).squeeze(1) - sampled.detach()).exp() * advantage - beta * kl_s
        total = total - (alpha * j_t + (1 - alpha) * j_s).sum()
        count += len(reply)
    return total / count


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("tokens_at_once", [1, 25, 10_000])
def test_loss_and_gradient_are_those_of_the_formula(
    student: Student, alpha: float, beta: float, tokens_at_once: int
) -> None:
    expected = reference(student, alpha, beta)
    gradients = torch.autograd.grad(expected, student.trainable())
    plan = Plan(1, 0.0, clip_norm=1e9, tokens_at_once=tokens_at_once)
    samples, signal = rows(student), Blend(reward, LiveTeacher(student), 0.5)
    objective = PrivilegedGradient(alpha, beta)
    result = gradient_of_step(student, samples, signal, objective, plan)
    torch.testing.assert_close(result, torch.cat([g.flatten() for g in gradients]), rtol=1e-5, atol=1e-6)
    record = next(train(student, FixedRows(samples, rows=len(samples)), signal, objective, plan))
    assert record.loss == pytest.approx(expected.item(), abs=1e-6)  # the log-probs of rollouts are float32


def test_rows_with_the_context_and_without_are_never_in_one_batch(student: Student) -> None:
    groups = [{row.privileged for row in group} for group in micro_batches(rows(student), 10_000)]
    assert groups == [{False}, {True}]


def test_without_a_reward_or_rollouts_it_is_refused(student: Student) -> None:
    batch = Batch.collate([Sample([1, 2, 3], [False, True, True])], 0)
    with pytest.raises(RecoverError, match="Choose --teacher live"):
        PrivilegedGradient().prepare(TeacherSignal(LiveTeacher(student)).compute(batch), batch, 0.5)
