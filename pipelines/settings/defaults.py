"""Default settings by the size of the model and, in a distillation, by what its recipe learns from.

Small models are like the built-in one; medium ones were measured on SmolLM2-135M-Instruct (docs/real-models.md). For
large ones the rates are those that others report for LoRA, and for medium ones that learn from their own rollouts
those that others report for all weights.
"""

from typing import Literal, NamedTuple

from pipelines.settings.schema import Distill, Midtrain, Mix, Settings

SMALL_MODEL_PARAMETERS = 100_000_000
MEDIUM_MODEL_PARAMETERS = 1_000_000_000  # up to this size all weights are trained: 16 bytes a parameter

Size = Literal["small", "medium", "large"]
LearnsFrom = Literal["texts", "teacher on rollouts", "reward"]


class Pace(NamedTuple):
    """How fast a distillation learns. Where rollouts come in groups, `rows` is a multiple of the group."""

    learning_rate: float
    steps: int
    rows: int


PACES: dict[LearnsFrom, dict[Size, Pace]] = {
    "texts": {"small": Pace(5e-4, 40, 64), "medium": Pace(1e-3, 80, 7), "large": Pace(1e-4, 100, 64)},
    "teacher on rollouts": {"small": Pace(5e-4, 40, 64), "medium": Pace(2e-5, 80, 16), "large": Pace(1e-4, 100, 64)},
    "reward": {"small": Pace(2e-4, 100, 64), "medium": Pace(2e-5, 80, 16), "large": Pace(1e-4, 100, 64)},
}


def defaults_for(parameters: int, recipe: str | None = None) -> Settings:
    """The defaults of a distillation by `recipe`, or by the one that is usual for the size."""
    settings = _defaults_of(size_of(parameters))
    recipe = recipe or settings.distill.recipe
    pace = PACES[learns_from(recipe)][size_of(parameters)]
    distill = settings.distill.model_copy(update={"recipe": recipe, **pace._asdict()})
    return settings.model_copy(update={"distill": distill})


def size_of(parameters: int) -> Size:
    if parameters > MEDIUM_MODEL_PARAMETERS:
        return "large"
    return "medium" if parameters > SMALL_MODEL_PARAMETERS else "small"


def learns_from(recipe: str) -> LearnsFrom:
    """Labels are texts, also where the student wrote them. Names that are no recipes are refused later."""
    from recovery.recipes import RECIPES  # imports torch, which takes a second

    chosen = RECIPES.get(recipe)
    if chosen is None or chosen.estimator == "labels" or not chosen.on_policy_fraction:
        return "texts"
    return "reward" if chosen.needs_reward else "teacher on rollouts"


def _defaults_of(size: Size) -> Settings:
    """bfloat16 where the machine has units for it."""
    from recovery.hardware import has_bfloat16  # imports torch, which takes a second

    if size == "large":
        return Settings(bf16=has_bfloat16())
    if size == "medium":
        return Settings(
            lora_rank=0,
            bf16=has_bfloat16(),
            checkpointing=False,
            tokens_at_once=4096,
            midtrain=Midtrain(learning_rate=3e-4, generated_texts=320, mix=Mix(answers=0.3, texts=0.34, earlier=0.3)),
            distill=Distill(
                recipe="offpolicy-kl",
                if_needed=True,
                max_new_tokens=320,
                prompts=800,
                documents=0.4,
                probe_every=0,
            ),
        )
    return Settings(
        lora_rank=0,
        bf16=has_bfloat16(),
        checkpointing=False,
        midtrain=Midtrain(
            learning_rate=2e-3, epochs=8, window=256, rows=16, mix=Mix(answers=0.3, texts=0.3, earlier=0.3)
        ),
        distill=Distill(max_new_tokens=320, prompts=2560, warm_start="default", probe_items=600),
    )
