"""Default settings by the size of the model: learning rates, steps, rows, adapter rank and the training mix.

Small models are like the built-in one; medium ones were measured on SmolLM2-135M-Instruct (docs/real-models.md). For
large ones the rates are those that others report for LoRA.
"""

from pipelines.settings.schema import Distill, Midtrain, Mix, Settings

SMALL_MODEL_PARAMETERS = 100_000_000
MEDIUM_MODEL_PARAMETERS = 1_000_000_000  # up to this size all weights are trained: 16 bytes a parameter


def defaults_for(parameters: int) -> Settings:
    """bfloat16 where the machine has units for it."""
    from recovery.models.precision import has_bfloat16  # imports torch, which takes a second

    if parameters > MEDIUM_MODEL_PARAMETERS:
        return Settings(bf16=has_bfloat16())
    if parameters > SMALL_MODEL_PARAMETERS:
        return Settings(
            lora_rank=0,
            bf16=has_bfloat16(),
            checkpointing=False,
            tokens_at_once=4096,
            midtrain=Midtrain(learning_rate=3e-4),
            distill=Distill(
                recipe="offpolicy-kl",
                learning_rate=1e-3,
                steps=80,
                rows=7,
                max_new_tokens=320,
                prompts=600,
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
        distill=Distill(
            learning_rate=5e-4, steps=40, max_new_tokens=320, prompts=2560, warm_start="default", probe_items=600
        ),
    )
