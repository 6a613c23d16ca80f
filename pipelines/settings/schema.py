"""The settings of mid-training, distillation and the gate: names, types and limits."""

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from pipelines.settings.sources import DEFAULT_ENGINE, ENGINES, EngineName
from recovery.context_templates import check_template

AUTO: Literal["auto"] = "auto"
DEFAULT_WARM_START = 0.3  # docs/lab.md
ClipMode = Literal["zero", "scale"]
LATER_CYCLE_WARM_START = 0.2  # towards the weights of the last cycle, if mid-training lost little


def _number_from_text(value: Any) -> Any:
    """The number that a text such as ".3" stands for. Other values stay as they are."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


# Types of settings. The description completes the sentence "NAME must be …".
Count = Annotated[int, Field(ge=1, description="a whole number of at least 1")]
CountOrZero = Annotated[int, Field(ge=0, description="a whole number of at least 0")]
Float = Annotated[float, BeforeValidator(_number_from_text)]  # flags and variables give text
Number = Annotated[Float, Field(ge=0, description="a number of at least 0")]
PositiveNumber = Annotated[Float, Field(gt=0, description="a number above 0")]
Fraction = Annotated[Float, Field(ge=0, le=1, description="a number from 0 to 1")]
Share = Annotated[Float, Field(ge=0, lt=1, description="a number of at least 0 and below 1")]


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _none_from_text(cls, value: Any, info: ValidationInfo) -> Any:
        """TOML and flags have no other word for a setting without a value."""
        unset = cls.model_fields[info.field_name or ""].default is None
        return None if unset and value == "none" else value


class Mix(Group):
    """What mid-training reads besides the new documents, which get the rest."""

    answers: Share = 0.0  # of all tokens taught, the share that is the base's sampled answers to its own prompts
    texts: Share = 0.0  # of the rows read, the share that is unprompted text the base wrote
    earlier: Share = 0.3  # of the rows read, the share that is documents of earlier cycles, if there are any

    @model_validator(mode="after")
    def _leaves_room_for_documents(self) -> "Mix":
        if self.texts + self.earlier >= 1:
            raise ValueError(
                f"The shares midtrain.mix.earlier ({self.earlier:g}) and midtrain.mix.texts ({self.texts:g}) leave "
                "nothing to the new documents. Together they must be below 1."
            )
        return self


class Midtrain(Group):
    recipe: str = "midtrain"
    learning_rate: Number = 2e-4
    epochs: Annotated[  # auto: by the size of the corpus, as `rows`
        PositiveNumber | Literal["auto"], Field(description="auto or a number above 0")
    ] = AUTO
    window: Count = 512  # tokens of one row
    rows: Annotated[Count | Literal["auto"], Field(description="auto or a whole number of at least 1")] = AUTO  # a step
    soft_labels: bool = True  # generated and earlier rows are taught by full distributions, which takes a teacher
    generated_texts: Count = 2048  # how many texts the base writes for the mix
    ordinary_prompts: Share = 0.33  # share of the prompts that are about no passage (recipe in-context)
    max_steps: Count | None = None
    mix: Mix = Mix()

    @property
    def step_rows(self) -> int:
        """Rows of a step, once the corpus has decided them."""
        assert self.rows != AUTO
        return self.rows

    def steps(self, windows: float, rows: float) -> int:
        """Steps that read `windows` windows `epochs` times, `rows` windows a step."""
        assert self.epochs != AUTO
        steps = max(1, math.ceil(self.epochs * windows / rows - 1e-9))
        return min(steps, self.max_steps or steps)


class Dials(Group):
    """What may be changed of a recipe (`recovery.recipes`); none: as the recipe has it."""

    on_policy_fraction: Fraction | None = None
    teacher_weight: Fraction | None = None
    beta: Fraction | None = None
    clip: Number | None = None
    clip_mode: Annotated[ClipMode | None, Field(description="zero or scale")] = None
    group: Count | None = None
    epochs: Count | None = None
    ratio_clip: Number | None = None
    scale_rewards: bool | None = None
    anchor: Number | None = None
    dft: bool | None = None

    @property
    def dials(self) -> dict[str, Any]:
        return {name: value for name in Dials.model_fields if (value := getattr(self, name)) is not None}


class Distill(Dials):
    recipe: str = "opd"
    learning_rate: Number = 1e-4
    steps: CountOrZero = 100  # 0: the warm start alone
    if_needed: bool = False  # a cycle distils only if the gate does not promote the mid-trained model as it is
    rows: Count = 64
    max_new_tokens: Count = 1024
    prompts: Count = 2048  # how many the base writes when no file of prompts is given
    documents: Share | None = None  # of a step's rows, the share that is documents, read again; None: 0, or `repair`'s
    texts: Share | None = None  # the same of texts that the base wrote unprompted; None: 0, or `repair`'s
    earlier_prompts: Share = 0.33  # share of the prompts that are openings of earlier documents, with a router
    warm_start: Annotated[  # interpolate by this share towards the weights before mid-training
        Share | Literal["off", "auto", "default"],
        Field(description="off, auto, default or a share of at least 0 and below 1"),
    ] = "off"
    probe_every: CountOrZero = 10  # steps between two evaluations on the probe set; 0: none, so all steps are taken
    probe_items: Count = 300
    max_steps: Count | None = None
    max_minutes: PositiveNumber | None = None
    max_flops: PositiveNumber | None = None
    temperature: PositiveNumber = 1.0  # of replies that the teacher, or the student's start, writes beforehand
    ema_decay: Share = 0.95  # of the teacher that is an average of the student
    context_template: str | None = None  # how the teacher reads prompt and context; none: the recipe's own
    shuffle_contexts: bool = False  # a control: every prompt gets the context of another
    require_lift: bool = True  # refuse contexts that are not shown to help the teacher

    @property
    def most_steps(self) -> int:
        return min(self.steps, self.max_steps or self.steps)

    @property
    def documents_share(self) -> float:
        return self.documents or 0.0

    @property
    def texts_share(self) -> float:
        return self.texts or 0.0

    @model_validator(mode="after")
    def _leaves_room_for_the_recipe(self) -> "Distill":
        if self.documents_share + self.texts_share >= 1:
            raise ValueError(
                f"The shares distill.documents ({self.documents_share:g}) and distill.texts ({self.texts_share:g}) "
                "leave nothing to the recipe's own rows. Together they must be below 1."
            )
        return self

    @model_validator(mode="after")
    def _template_has_both_fields(self) -> "Distill":
        if self.context_template is not None:
            check_template(self.context_template)
        return self


class Gate(Group):
    behaviour_margin: Fraction = 0.03
    block: CountOrZero = 200  # prompts between two looks at the verdict; 0: all are asked at once
    keep_knowledge: Fraction = 0.95
    keep_earlier: Fraction = 0.95  # of each earlier cycle's final score on its own questions
    keep_retention: Share = 0.95  # of what the clean model knew before; 0: no limit


class Settings(Group):
    base: Annotated[str | None, Field(exclude=True)] = None
    # Address of the database; a SQLite file of the project by default. It may hold a password, so no run stores it.
    db: Annotated[str | None, Field(exclude=True)] = None
    lora_rank: CountOrZero = 128  # 0: all weights are trained
    bf16: bool = True  # off where the processor only emulates it: there float32 is several times faster
    engine: Annotated[  # generates the student's rollouts
        EngineName,
        Field(
            pattern=f"^({'|'.join(ENGINES)}|https?://.+)$",
            description=f"{', '.join(ENGINES)} or http://HOST:PORT of vLLM servers",
        ),
    ] = DEFAULT_ENGINE
    tokens_at_once: Count = 8192  # per forward pass in training; changes memory, not the result
    checkpointing: bool = True  # recompute layers in the backward pass, which saves much memory
    keep_documents: bool = True  # keep the documents' text in .recover/, to resume and for later cycles' mix
    report_to: Annotated[  # also log to one of these
        Literal["none", "wandb", "trackio", "tensorboard"], Field(description="none, wandb, trackio or tensorboard")
    ] = "none"
    save_minutes: Number = 2.0  # between two saves of a run in progress
    midtrain: Midtrain = Midtrain()
    distill: Distill = Distill()
    gate: Gate = Gate()


def split_rows(rows: int, shares: Iterable[float]) -> list[int]:
    """How many of `rows` each share gets: at least one each, and at least one left over, where there are enough."""
    shares = list(shares)
    counts = [max(round(share * rows), int(share > 0)) for share in shares]
    return counts if sum(counts) < rows else [int(share * rows) for share in shares]
