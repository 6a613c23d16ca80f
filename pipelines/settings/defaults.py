"""Default settings for small and large models: learning rates, steps, rows, adapter rank and the training mix."""

from pipelines.settings.schema import Distill, Midtrain, Mix, Settings

SMALL_MODEL_PARAMETERS = 100_000_000  # up to this size all weights are trained: an adapter would be no smaller


def defaults_for(parameters: int) -> Settings:
    """Large models train an adapter, at rates others report for LoRA; small ones all weights, at rates measured here.
    bfloat16 where the machine has units for it."""
    from recovery.models.precision import has_bfloat16  # imports torch, which takes a second

    if parameters > SMALL_MODEL_PARAMETERS:
        return Settings(bf16=has_bfloat16())
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
