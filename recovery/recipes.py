"""Training methods by name: each is a set of defaults for the same dials, and all run in one training loop.

The dials, any of which may be changed where `DIALS` says that it has a meaning:

on_policy_fraction  α, the share of rows that are the student's own rollouts: 0 none, 1 all
teacher_weight      λ, the weight of the teacher's signal; the reward has weight 1 − λ
beta                of the exact divergence: 1 reverse KL, 0 forward KL, in between generalised Jensen–Shannon
clip, clip_mode     bound of what a token of the vocabulary ("zero") or a position ("scale") adds to it; 0: none
group               rollouts per prompt
epochs              optimiser steps per draw
ratio_clip          how far the importance ratio of a sampled token may be from 1; 0: any
scale_rewards       divide a reward minus its group's mean by its group's standard deviation
anchor              weight of a KL to the base, which is added to the loss: KL(base ‖ student) beside labels,
                    KL(student ‖ base) beside rewards
dft                 weight the loss of a label by the student's own probability of it

What else tells recipes apart:

estimator           "labels" (cross-entropy on the token in the data), "full" (exact divergence over the vocabulary)
                    or "sampled" (policy gradient on the sampled token)
data                where the other rows come from: "documents", "conversations", "teacher" (texts sampled from it) or
                    "start" (texts sampled from the model that the student was before its first step)
continued           how many tokens the teacher writes after the beginning of a rollout: at least, at most
right_only          rollouts that fail the checks of their prompt are not learned
context             fields of the data that hold what only the teacher reads; the first that a row has counts
template            how the teacher reads prompt and context (`recovery.context_templates`)
teacher             whose weights teach where the user names no teacher: "base", or the student's own average ("ema")
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from recovery.context_templates import DEMONSTRATION, PASSAGE, POLICY, SOLUTION, SYSTEM_PROMPT
from recovery.divergences import ClipMode
from recovery.errors import RecoverError
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.samples import Sample
from recovery.signals import Blend, Labels, Signal, TeacherSignal
from recovery.teachers import Teacher

Estimator = Literal["labels", "full", "sampled"]
DataSource = Literal["documents", "conversations", "teacher", "start", "none"]


@dataclass(frozen=True)
class Recipe:
    about: str
    on_policy_fraction: float = 1.0
    teacher_weight: float = 1.0
    estimator: Estimator = "full"
    beta: float = 1.0
    group: int = 1
    epochs: int = 1
    dft: bool = False
    anchor: float = 0.0
    data: DataSource = "none"
    clip: float = 0.0
    clip_mode: ClipMode = "zero"
    ratio_clip: float = 0.2
    scale_rewards: bool = False
    right_only: bool = False
    context: tuple[str, ...] = ()
    template: str = ""
    teacher: Literal["base", "ema"] = "base"
    continued: tuple[int, int] | None = None

    @property
    def needs_reward(self) -> bool:
        return self.teacher_weight < 1

    @property
    def needs_checks(self) -> bool:
        """Whether something says which replies are right."""
        return self.right_only or self.needs_reward

    @property
    def restores(self) -> bool:
        """Whether it only leads back to a clean teacher: then it may end once nothing is missing."""
        return self.data in ("none", "teacher") and not self.context and not self.needs_checks

    @property
    def scores_with_teacher(self) -> bool:
        """Whether a teacher scores the rows; a teacher may also be needed to write them."""
        return self.anchor > 0 or (self.teacher_weight > 0 and self.estimator != "labels")

    @property
    def compares(self) -> bool:
        """Whether it learns the teacher's whole distribution, which any text has."""
        return self.estimator == "full" and self.teacher_weight > 0

    @property
    def dials(self) -> dict[str, Any]:
        """Those that have a meaning for it."""
        return {name: getattr(self, name) for name, dial in DIALS.items() if dial.applies(self)}


class Dial(NamedTuple):
    applies: Callable[[Recipe], bool]
    otherwise: str  # why it has no meaning for another recipe


_COMPARES = Dial(lambda chosen: chosen.compares, "it computes no exact divergence")
DIALS: dict[str, Dial] = {
    "on_policy_fraction": Dial(
        lambda chosen: chosen.compares,
        "only an exact divergence is learned from rollouts and from replies of the teacher alike",
    ),
    "teacher_weight": Dial(
        lambda chosen: chosen.estimator in ("full", "sampled") and chosen.on_policy_fraction > 0,
        "only a teacher's judgement of rollouts can be blended with a reward",
    ),
    "beta": _COMPARES,
    "clip": _COMPARES,
    "clip_mode": _COMPARES,
    "group": Dial(lambda chosen: chosen.on_policy_fraction > 0, "it has no rollouts"),
    "epochs": Dial(lambda chosen: chosen.on_policy_fraction > 0, "it has no rollouts"),
    "ratio_clip": Dial(
        lambda chosen: chosen.estimator == "sampled" or (chosen.estimator == "full" and chosen.teacher_weight < 1),
        "it clips no importance ratio",
    ),
    "scale_rewards": Dial(lambda chosen: chosen.needs_reward, "it has no reward"),
    "anchor": Dial(
        lambda chosen: not chosen.context and (chosen.estimator == "labels" or chosen.teacher_weight == 0),
        "only what learns labels or rewards without a context can be held near the base",
    ),
    "dft": Dial(lambda chosen: chosen.estimator == "labels", "it learns no labels"),
}


RECIPES: dict[str, Recipe] = {
    "midtrain": Recipe("next-token prediction on documents", 0, 1, "labels", data="documents"),
    "sft": Recipe("conversations, loss on the assistant's tokens", 0, 1, "labels", data="conversations"),
    "dft": Recipe("SFT weighted by the student's own probability", 0, 1, "labels", data="conversations", dft=True),
    "sft-anchored": Recipe("SFT plus 0.1 KL(base ‖ student)", 0, 1, "labels", data="conversations", anchor=0.1),
    "asft": Recipe("DFT plus 0.1 KL(base ‖ student)", 0, 1, "labels", data="conversations", dft=True, anchor=0.1),
    "offpolicy": Recipe("texts sampled from the teacher, as labels", 0, 1, "labels", data="teacher"),
    "offpolicy-kl": Recipe("texts sampled from the teacher, forward KL", 0, 1, "full", beta=0.0, data="teacher"),
    "opd": Recipe("the student's rollouts, exact reverse KL to the teacher", 1, 1, "full"),
    "opd-sampled": Recipe(
        "the student's rollouts, the teacher's log-ratio on each sampled token", 1, 1, "sampled", group=4
    ),
    "gkd": Recipe("half rollouts, half teacher samples, Jensen–Shannon", 0.5, 1, "full", beta=0.5, data="teacher"),
    "grpo": Recipe("the student's rollouts, a reward minus its group's mean", 1, 0, "sampled", group=8),
    "teacher-reward": Recipe("teacher and reward blended on each token", 1, 0.5, "sampled", group=8),
    "opsd": Recipe(
        "rollouts, clipped forward KL to a teacher that has read a solution",
        beta=0.0,
        clip=0.05,
        context=("solution",),
        template=SOLUTION,
    ),
    "sdft": Recipe(
        "rollouts, reverse KL to the student's own average, which has read a demonstration",
        context=("demonstration", "answer"),
        template=DEMONSTRATION,
        teacher="ema",
    ),
    "opcd": Recipe(
        "rollouts, reverse KL to a teacher with a system prompt", context=("context",), template=SYSTEM_PROMPT
    ),
    "deliberative": Recipe(
        "rollouts, reverse KL to a teacher that has read a policy", context=("context",), template=POLICY
    ),
    "deliberative-sft": Recipe(
        "replies of a teacher that has read a policy, as labels",
        0,
        estimator="labels",
        data="teacher",
        context=("context",),
        template=POLICY,
    ),
    "in-context": Recipe(
        "half rollouts, half replies of a teacher that has read the passage, forward KL to that teacher",
        0.5,
        beta=0.0,
        data="teacher",
        context=("passage",),
        template=PASSAGE,
    ),
    "self-sft": Recipe("texts sampled from the student's start, as labels", 0, 1, "labels", data="start"),
    "continuation": Recipe(
        "beginnings of rollouts, continued by the teacher, as labels", estimator="labels", continued=(16, 32)
    ),
    "rs-sft": Recipe("the student's rollouts that pass their checks, as labels", 1, 1, "labels", right_only=True),
}


def recipe(name: str, **dials: Any) -> Recipe:
    """The recipe of this name, with some of its dials changed."""
    if name not in RECIPES:
        raise RecoverError(f"There is no recipe {name!r}. Choose one of {', '.join(RECIPES)}.")
    named = RECIPES[name]
    changed = replace(named, **dials)
    for dial, value in dials.items():
        if dial not in changed.dials and (dial not in named.dials or value != named.dials[dial]):
            raise RecoverError(
                f"The recipe {name} has no use for distill.{dial}: {DIALS[dial].otherwise}. Leave it out."
            )
    if changed.teacher_weight == 0 and (changed.on_policy_fraction < 1 or changed.context):
        raise RecoverError(
            f"With distill.teacher_weight = 0 the recipe {name} learns nothing from what its teacher writes or reads. "
            "Choose the recipe grpo."
        )
    if changed.needs_reward and changed.group == 1:
        raise RecoverError(
            f"The recipe {name} compares rewards within a group. Set distill.group to 2 or more, such as 8."
        )
    if "on_policy_fraction" not in dials:
        return changed
    others = "teacher" if named.data == "none" else named.data
    return replace(changed, data=others if changed.on_policy_fraction < 1 else "none")


def signal_of(
    recipe: Recipe, teacher: Teacher | None = None, reward: Callable[[Sample], float] | None = None
) -> Signal:
    if recipe.needs_reward:
        if reward is None:
            raise RecoverError("This recipe learns from a reward. Pass a function that scores a reply.")
        judge = teacher if recipe.scores_with_teacher else None
        return Blend(reward, judge, recipe.teacher_weight, scale_rewards=recipe.scale_rewards)
    if recipe.estimator == "labels" and recipe.anchor == 0:
        return Labels(teacher)
    if teacher is None:
        raise RecoverError("This recipe learns from a teacher. Name one with --teacher.")
    return TeacherSignal(teacher)


def objective_of(recipe: Recipe) -> Objective:
    epochs, ratio_clip = recipe.epochs, recipe.ratio_clip
    if recipe.estimator == "labels":
        return CrossEntropy(dft=recipe.dft, anchor=recipe.anchor, epochs=epochs)
    if recipe.compares:
        return Divergence(recipe.beta, recipe.clip, recipe.clip_mode, ratio_clip=ratio_clip, epochs=epochs)
    return SampledGradient(ratio_clip, anchor=recipe.anchor, epochs=epochs)
