"""The settings' values where nothing sets them: by the size of the model, the recipe, the corpus and this machine.

Small models are like the built-in one; medium ones were measured on SmolLM2-135M-Instruct (docs/real-models.md). For
large ones the rates are those that others report for LoRA, and for medium ones that learn from their own rollouts
those that others report for all weights.

A small corpus is read more often and in smaller steps. What shows it, and what does not: docs/real-models.md.
"""

import math
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from pipelines.log import log
from pipelines.settings.schema import AUTO, Distill, Midtrain, Mix, Settings, split_rows
from pipelines.settings.sources import EngineName

SMALL_MODEL_PARAMETERS = 100_000_000
MEDIUM_MODEL_PARAMETERS = 1_000_000_000  # up to this size all weights are trained: 16 bytes a parameter

TARGET_STEPS = 135  # of mid-training
FEW_STEPS = 50  # below, a warning is logged
MAX_STEP_TOKENS = 32_768
MIN_EPOCHS, MAX_EPOCHS = 3.0, 20.0

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


def defaults_for(parameters: int, recipe: str | None = None, dials: Mapping[str, Any] | None = None) -> Settings:
    """The defaults of a distillation by `recipe`, or by the one that is usual for the size; `dials` are changed."""
    from recovery import recipes  # imports torch, which takes a second

    size = size_of(parameters)
    settings = _defaults_of(size)
    name = recipe or settings.distill.recipe
    update = {"recipe": name, **PACES[learns_from(name, dials)][size]._asdict()}
    if unchanged_recipe := recipes.RECIPES.get(name):  # each dial that has a meaning once `dials` are changed
        update |= {dial: getattr(unchanged_recipe, dial) for dial in recipes.recipe(name, **dials or {}).dials}
    return settings.model_copy(update={"distill": settings.distill.model_copy(update=update)})


def size_of(parameters: int) -> Size:
    if parameters > MEDIUM_MODEL_PARAMETERS:
        return "large"
    return "medium" if parameters > SMALL_MODEL_PARAMETERS else "small"


def learns_from(name: str, dials: Mapping[str, Any] | None = None) -> LearnsFrom:
    """Labels are texts, also where the student wrote them. Names that are no recipes are refused later."""
    from recovery.recipes import RECIPES, recipe  # imports torch, which takes a second

    chosen = recipe(name, **dials or {}) if name in RECIPES else None
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


def choose_engine(setting: EngineName, parameters: int) -> EngineName:
    """The library that generates text: for `auto`, vLLM if it is installed, except for small models."""
    if setting != "auto":
        return setting
    from recovery.distributed import processes  # imports torch, which takes a second

    if processes() > 1:
        return "transformers"  # vLLM would use the training's process group as its own
    if parameters <= SMALL_MODEL_PARAMETERS:
        return "transformers"  # vLLM takes longer to start than a small model takes to answer
    return _automatic()


@cache  # so that the choice is logged once
def _automatic() -> EngineName:
    if find_spec("vllm") is None:
        log.info("Engine: transformers; vLLM generates text faster, but it is not installed")
        return "transformers"
    log.info("Engine: vLLM")
    return "vllm"


def scheduled(midtrain: Midtrain, tokens: int, *, has_texts: bool = True, has_earlier: bool = False) -> Midtrain:
    """The settings with `epochs` and `rows` as numbers, for a corpus of so many tokens.

    `has_texts` and `has_earlier`: whether there are the texts and the earlier documents that the mix asks for; a base
    may be unable to write texts."""
    epochs = _epochs(tokens) if midtrain.epochs == AUTO else midtrain.epochs
    texts, earlier = midtrain.mix.texts if has_texts else 0.0, midtrain.mix.earlier if has_earlier else 0.0
    rows = _rows(epochs * tokens, midtrain.window, texts, earlier) if midtrain.rows == AUTO else midtrain.rows
    return midtrain.model_copy(update={"epochs": epochs, "rows": rows})


def midtraining_steps(midtrain: Midtrain, tokens: int) -> int:
    """Steps on documents of so many tokens, without earlier cycles."""
    midtrain = scheduled(midtrain, tokens)
    _, texts = split_rows(midtrain.step_rows, (0.0, midtrain.mix.texts))
    return midtrain.steps(math.ceil(tokens / midtrain.window), midtrain.step_rows - texts)


def warn_of_few_steps(midtrain: Midtrain, steps: int, rows: str = "midtrain.rows") -> None:
    """`rows` is the setting that says how large a step is."""
    if steps < FEW_STEPS and steps != midtrain.max_steps:
        log.warning(
            f"Only {steps} optimiser step{'s' * (steps != 1)}: the documents may hardly be learned. Raise "
            f"midtrain.epochs or lower {rows}"
        )


def _epochs(tokens: int) -> float:
    """6 for 50,000 tokens, 15 for 5,000 and 3 from 300,000 on."""
    passes: float = 6 * (50_000 / max(tokens, 1)) ** 0.4
    return round(min(max(passes, MIN_EPOCHS), MAX_EPOCHS), 1)


def _rows(tokens_to_read: float, window: int, texts: float, earlier: float) -> int:
    """Texts of the mix are read beside the documents: they do not make the steps more. There is a row of each
    part."""
    of_documents = max(1, int(tokens_to_read / TARGET_STEPS / window))
    of_texts = max(1, round(of_documents * texts / (1 - texts))) if texts else 0
    return max(1 + (texts > 0) + (earlier > 0), min(of_documents + of_texts, MAX_STEP_TOKENS // window))
