from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.objectives import loss_of_chunk
from recovery.recipes import DIALS, RECIPES, Recipe, objective_of, recipe, signal_of
from recovery.samples import Batch, Sample
from recovery.states import Prompt, Rollouts
from recovery.teachers import Teacher, TeacherLogprobs
from recovery.train import Plan, TrainState, train
from tests.models import tiny_student
from tests.recovery.fixed_teacher import FixedTeacher

VOCABULARY, ROWS, LENGTH = 6, 8, 3
CHANGED: dict[str, Any] = {
    "on_policy_fraction": 0.25,
    "teacher_weight": 0.25,
    "beta": 0.25,
    "clip": 0.07,
    "clip_mode": "scale",
    "group": 2,
    "epochs": 3,
    "ratio_clip": 0.3,
    "scale_rewards": True,
    "anchor": 0.3,
    "dft": True,
}


class _Judge(Teacher):
    def __init__(self, logprobs: Tensor):
        self._logprobs = logprobs

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        return FixedTeacher(self._logprobs)


class Case:
    """Rollouts of eight rows with any logits, and a teacher with others; the policy has moved since it sampled them."""

    def __init__(self, group: int = 4):
        torch.manual_seed(5)
        self.logits = torch.randn(ROWS * LENGTH, VOCABULARY, dtype=torch.float64, requires_grad=True)
        self.teacher = (1.5 * torch.randn(ROWS * LENGTH, VOCABULARY).double()).log_softmax(-1)
        self.tokens = torch.randint(VOCABULARY, (ROWS, LENGTH))
        self.chosen = self.logits.log_softmax(-1).gather(1, self.tokens.flatten()[:, None]).squeeze(1)
        self.rollout = (self.chosen.detach() + 0.4 * torch.randn(ROWS * LENGTH)).float()
        self.groups = [row // group for row in range(ROWS)]
        self.rewards = [float(tokens.sum() % 4) for tokens in self.tokens]

    @property
    def samples(self) -> list[Sample]:
        rows = zip(self.tokens.tolist(), self.rollout.view(ROWS, LENGTH).tolist(), self.groups, strict=True)
        return [Sample([0, *tokens], [False] + [True] * LENGTH, sampled, group) for tokens, sampled, group in rows]

    def ours(self, chosen: Recipe) -> Tensor:
        rewards = {tuple(tokens): reward for tokens, reward in zip(self.tokens.tolist(), self.rewards, strict=True)}
        judge = _Judge(self.teacher) if chosen.scores_with_teacher else None
        signal = signal_of(chosen, judge, lambda sample: rewards[tuple(sample.tokens[1:])])
        batch = Batch.collate(signal.prepare(self.samples), 0)
        loss = loss_of_chunk(objective_of(chosen), signal.compute(batch), batch, signal.teacher_weight)
        return loss(self.logits, slice(None)).loss

    def terms(self, beta: float) -> Tensor:
        """Of the divergence: one for each token of the vocabulary."""
        p, q = self.logits.softmax(-1), self.teacher.exp()
        if beta == 0:
            return q * (q / p).log()
        if beta == 1:
            return p * (p / q).log()
        middle = beta * q + (1 - beta) * p
        return beta * q * (q / middle).log() + (1 - beta) * p * (p / middle).log()

    def divergence(self, beta: float) -> Tensor:
        return self.terms(beta).sum(-1)

    def advantage(self, *, scaled: bool = False) -> Tensor:
        """Of each token: its row's reward minus the mean of its group, divided by its deviation if `scaled`."""
        result = []
        for reward, group in zip(self.rewards, self.groups, strict=True):
            others = torch.tensor([r for r, g in zip(self.rewards, self.groups, strict=True) if g == group]).double()
            deviation = float(others.std(correction=0)) if scaled else 1.0
            result += LENGTH * [(reward - float(others.mean())) / (deviation or 1.0)]
        return torch.tensor(result, dtype=torch.float64)

    def policy_gradient(self, advantage: Tensor, clip: float = 0.2) -> Tensor:
        ratio = (self.chosen - self.rollout).exp()
        bound = ratio if clip == 0 else ratio.clamp(1 - clip, 1 + clip)
        return -torch.minimum(ratio * advantage, bound * advantage)

    def log_ratio(self) -> Tensor:
        return self.teacher.gather(1, self.tokens.flatten()[:, None]).squeeze(1) - self.rollout

    def check(self, chosen: Recipe, expected: Tensor) -> None:
        ours = self.ours(chosen)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
        gradients = [torch.autograd.grad(loss.sum(), self.logits, retain_graph=True)[0] for loss in (ours, expected)]
        assert gradients[1].norm() > 0
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_teacher_weight_blends_a_divergence_with_a_reward(weight: float) -> None:
    case = Case()
    reward = case.policy_gradient((1 - weight) * case.advantage())
    case.check(recipe("opd", teacher_weight=weight, group=4), weight * case.divergence(1) + reward)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_teacher_weight_blends_a_log_ratio_with_a_reward(weight: float) -> None:
    case = Case()
    blended = weight * case.log_ratio() + (1 - weight) * case.advantage()
    case.check(recipe("teacher-reward", teacher_weight=weight), case.policy_gradient(blended))


@pytest.mark.parametrize("clip", [0.0, 0.1, 5.0])
def test_ratio_clip(clip: float) -> None:
    case = Case()
    case.check(recipe("grpo", ratio_clip=clip), case.policy_gradient(case.advantage(), clip))
    both = case.divergence(0) / 2 + case.policy_gradient(case.advantage() / 2, clip)
    case.check(recipe("opd", beta=0.0, teacher_weight=0.5, group=4, ratio_clip=clip), both)


@pytest.mark.parametrize("group", [2, 4, 8])
def test_group(group: int) -> None:
    case = Case(group)
    case.check(recipe("grpo", group=group), case.policy_gradient(case.advantage()))


@pytest.mark.parametrize("scaled", [False, True])
def test_scale_rewards(scaled: bool) -> None:
    case = Case()
    case.rewards[4:] = [0.1] * 4  # a group without a deviation adds nothing
    case.check(recipe("grpo", scale_rewards=scaled), case.policy_gradient(case.advantage(scaled=scaled)))
    assert case.ours(recipe("grpo", scale_rewards=scaled))[4 * LENGTH :].abs().max() < 1e-12


@pytest.mark.parametrize("anchor", [0.0, 0.1, 5.0])
def test_anchor_beside_a_reward(anchor: float) -> None:
    case = Case()
    case.check(recipe("grpo", anchor=anchor), case.policy_gradient(case.advantage()) + anchor * case.divergence(1))


@pytest.mark.parametrize("anchor", [0.0, 0.1, 5.0])
@pytest.mark.parametrize("dft", [False, True])
def test_anchor_and_dft_beside_labels(anchor: float, dft: bool) -> None:
    case = Case()
    labels = -case.chosen * (case.chosen.detach().exp() if dft else 1)
    case.check(recipe("sft", anchor=anchor, dft=dft), labels + anchor * case.divergence(0))


@pytest.mark.parametrize("mode", ["zero", "scale"])
@pytest.mark.parametrize("clip", [0.0, 0.05, 50.0])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_beta_clip_and_clip_mode(beta: float, clip: float, mode: str) -> None:
    case = Case()
    terms, total = case.terms(beta), case.divergence(beta)
    bounded = terms.clamp(max=clip).sum(-1) if mode == "zero" else total * (clip / total.detach()).clamp(max=1)
    case.check(recipe("opd", beta=beta, clip=clip, clip_mode=mode), bounded if clip else total)


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_epochs_are_steps_on_the_same_rollouts_with_a_clipped_ratio(epochs: int, tmp_path: Path) -> None:
    chosen, plan, steps = recipe("grpo", epochs=epochs, group=4), Plan(4, 2e-2), 4

    def rollouts(student: Student) -> Rollouts:
        prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(4)]
        return Rollouts(prompts, TransformersEngine(student), rows=8, group=4, max_new_tokens=6)

    def reward(sample: Sample) -> float:
        return float(sum(sample.tokens) % 7)

    student, other = tiny_student(tmp_path / "a", seed=1), tiny_student(tmp_path / "b", seed=1)
    signal = signal_of(chosen, None, reward)
    records = list(train(student, rollouts(student), signal, objective_of(chosen), plan))
    assert [record.rollout_seconds > 0 for record in records] == [step % epochs == 0 for step in range(steps)]
    states, optimizer = rollouts(other), TrainState.start(other, plan).optimizer
    rows: list[Sample] = []
    for step in range(steps):
        if step % epochs == 0:
            rows = states.draw(other, step // epochs)
        batch = Batch.collate(rows, other.chat.pad_id)
        log_p = F.log_softmax(other.head.logits(other.hidden(batch)), -1)
        chosen_p = log_p.gather(-1, batch.target_tokens[:, None]).squeeze(-1)
        means = {row.group: sum(reward(r) for r in rows if r.group == row.group) / 4 for row in rows}
        advantage = batch.per_target([reward(row) - means[row.group] for row in rows])
        ratio = (chosen_p - torch.tensor([value for row in rows for value in row.logprobs or []])).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(other.trainable(), plan.clip_norm))
        optimizer.step()
        other.updates += 1
        assert records[step].loss == pytest.approx(float(loss.detach()), abs=1e-4)
        assert records[step].grad_norm == pytest.approx(norm, rel=1e-2, abs=1e-3)
    ratios = [record.ratio_max for record in records]
    assert [ratio == pytest.approx(1, abs=1e-4) for ratio in ratios] == [step % epochs == 0 for step in range(steps)]


@pytest.mark.parametrize("dial", DIALS)
def test_a_dial_is_changed_where_it_has_a_meaning_and_refused_elsewhere(dial: str) -> None:
    more = {"group": 4} if dial == "teacher_weight" else {}
    for name, own in RECIPES.items():
        if dial in own.dials:
            changed = recipe(name, **{dial: CHANGED[dial]}, **more)
            assert changed.dials[dial] == CHANGED[dial]
            objective_of(changed)
            continue
        for value in (CHANGED[dial], getattr(own, dial)):
            sentence = rf"^The recipe {name} has no use for distill.{dial}: .*\. Leave it out\.$"
            with pytest.raises(RecoverError, match=sentence):
                recipe(name, **{dial: value})


@pytest.mark.parametrize(
    ("name", "dials", "message"),
    [
        ("opd", {"on_policy_fraction": 0.0, "group": 4}, "no use for distill.group: it has no rollouts"),
        ("opd", {"teacher_weight": 0.0, "beta": 0.5, "group": 4}, "no use for distill.beta: it computes no exact"),
        ("opd", {"teacher_weight": 0.5}, "compares rewards within a group. Set distill.group to 2 or more"),
        ("grpo", {"group": 1}, "The recipe grpo compares rewards within a group"),
        ("gkd", {"teacher_weight": 0.0, "group": 4}, "learns nothing from what its teacher writes or reads"),
        ("opsd", {"teacher_weight": 0.0, "group": 4}, "learns nothing from what its teacher writes or reads"),
        ("teacher-reward", {"anchor": 0.1}, "only what learns labels or rewards without a context"),
    ],
)
def test_dials_that_exclude_each_other_are_refused(name: str, dials: dict[str, Any], message: str) -> None:
    with pytest.raises(RecoverError, match=message):
        recipe(name, **dials)


def test_an_anchor_needs_the_base() -> None:
    chosen, case = recipe("grpo", anchor=0.1), Case()
    signal = signal_of(recipe("grpo"), None, lambda sample: 0.0)
    batch = Batch.collate(signal.prepare(case.samples), 0)
    with pytest.raises(RecoverError, match="An anchor needs the frozen base"):
        loss_of_chunk(objective_of(chosen), signal.compute(batch), batch, 0.0)


def test_only_rollouts_have_a_reward() -> None:
    """The teacher's replies beside them learn from its divergence alone, with its weight."""
    case, chosen = Case(), recipe("gkd", teacher_weight=0.3, group=4)
    signal = signal_of(chosen, _Judge(case.teacher), lambda sample: 5.0)
    replies = [Sample(sample.tokens, sample.targets) for sample in case.samples]
    prepared = signal.prepare([*case.samples, *replies])
    assert [sample.reward for sample in prepared] == [5.0] * ROWS + [None] * ROWS
    batch = Batch.collate(prepared[ROWS:], 0)
    loss = loss_of_chunk(objective_of(chosen), signal.compute(batch), batch, signal.teacher_weight)
    torch.testing.assert_close(loss(case.logits, slice(None)).loss, 0.3 * case.divergence(0.5))
