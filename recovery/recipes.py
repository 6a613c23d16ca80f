"""Every method by name, as settings of the same dials. None of them is a second loop.

alpha      how on-policy the states are: 0 data, 1 the student's own rollouts, between them a mixture
data       what the rest is, where alpha is below 1: "documents", "conversations" or "teacher" (its rollouts)
share      λ, how much teacher and how much reward
estimator  "labels" (the token that stands there), "full" (exact, over the vocabulary) or "sampled" (the sampled token)
beta       full: 1 reverse KL, 0 forward KL, between them Jensen–Shannon
"""

from collections.abc import Callable
from dataclasses import dataclass

from recovery.batch import Sample
from recovery.errors import RecoverError
from recovery.losses.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.signals import Blend, Labels, Signal, TeacherSignal
from recovery.teachers import Teacher


@dataclass(frozen=True)
class Recipe:
    about: str
    alpha: float
    share: float
    estimator: str
    beta: float = 1.0
    group: int = 1
    epochs: int = 1
    dft: bool = False
    anchor: float = 0.0
    data: str = "none"

    @property
    def needs_teacher(self) -> bool:
        return self.share > 0 and (self.estimator != "labels" or self.data == "teacher" or self.anchor > 0)


RECIPES: dict[str, Recipe] = {
    "midtrain": Recipe("documents, every token", 0, 1, "labels", data="documents"),
    "sft": Recipe("conversations, the assistant's tokens", 0, 1, "labels", data="conversations"),
    "dft": Recipe("SFT weighted by the student's own probability", 0, 1, "labels", data="conversations", dft=True),
    "sft-anchored": Recipe("SFT held near the frozen base", 0, 1, "labels", data="conversations", anchor=0.1),
    "offpolicy": Recipe("what the teacher writes, as labels", 0, 1, "labels", data="teacher"),
    "offpolicy-kl": Recipe("what the teacher writes, forward KL", 0, 1, "full", beta=0.0, data="teacher"),
    "opd": Recipe("the student's rollouts, exact reverse KL to the teacher", 1, 1, "full"),
    "opd-sampled": Recipe(
        "the student's rollouts, the teacher's verdict on each sampled token", 1, 1, "sampled", group=4
    ),
    "gkd": Recipe("half rollouts, half the teacher's, Jensen–Shannon", 0.5, 1, "full", beta=0.5, data="teacher"),
    "grpo": Recipe("the student's rollouts, a reward less its group's mean", 1, 0, "sampled", group=8),
    "teacher-reward": Recipe("teacher and reward blended on each token", 1, 0.5, "sampled", group=8),
}


def recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise RecoverError(f"there is no recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def signal_of(
    recipe: Recipe, teacher: Teacher | None = None, reward: Callable[[Sample], float] | None = None
) -> Signal:
    if recipe.share < 1:
        if reward is None:
            raise RecoverError("this recipe learns from a reward: give a function that scores a reply")
        return Blend(reward, teacher if recipe.share > 0 else None, recipe.share)
    if recipe.estimator == "labels" and recipe.anchor == 0:
        return Labels(teacher)
    if teacher is None:
        raise RecoverError("this recipe learns from a teacher: name one with --teacher")
    return TeacherSignal(teacher)


def objective_of(recipe: Recipe) -> Objective:
    if recipe.estimator == "labels":
        return CrossEntropy(dft=recipe.dft, anchor=recipe.anchor)
    if recipe.estimator == "full":
        return Divergence(recipe.beta)
    if recipe.estimator == "sampled":
        return SampledGradient(epochs=recipe.epochs)
    raise ValueError(f"no objective is known by the name {recipe.estimator!r}")
