"""How fast rented GPUs are taken to be, before anything was measured on them.

They are those of an A100, and low for a newer GPU; docs/scale.md says what was measured."""

from pipelines.estimates.work import REPLY
from pipelines.machine.calibration import Rates, chance_of_end
from pipelines.machine.model_shape import FULL, ModelShape
from pipelines.settings.schema import Settings

FLOPS = 1e14  # a second, in training: a third of an A100's peak in bfloat16, a tenth of an H100's
MEMORY_SPEED = 1e12  # bytes a second, read while generating: half of an A100's
LINK_SPEED = 1e11  # bytes a second from the other GPUs
DISK_SPEED = 1e9  # bytes a second
LAYER_PASS = 2.5e-4  # seconds, at least, of one more token for a batch; with an adapter twice that


def assumptions(tokens_per_second: float | None) -> list[str]:
    """What the hours rest on, as sentences."""
    speed = (
        f"Given: a GPU mid-trains {tokens_per_second:,.0f} tokens a second (--tokens-per-second)."
        if tokens_per_second
        else f"Assumed: a GPU trains at {FLOPS / 1e12:.0f} TFLOPS; --tokens-per-second replaces this by what was seen."
    )
    return [
        speed,
        f"Assumed: a GPU reads {MEMORY_SPEED / 1e12:.0f} TB/s of its memory and {LINK_SPEED / 1e9:.0f} GB/s from the "
        "others; replies have a quarter of their longest length.",
    ]


def gpu_rates(
    shape: ModelShape, settings: Settings, processes: int, rows: int, length: int, tokens_per_second: float | None
) -> Rates:
    """For all processes together, in steps of so many rows of that length. A process without a row is of no use."""
    weights, several = FULL * shape.parameters, processes > 1
    own_rows = -(-rows // processes)
    busy = rows / own_rows
    work = (4 if settings.lora_rank else 6) + 2 * settings.checkpointing  # FLOPs of a parameter and a token
    flops = busy * (tokens_per_second * work * shape.parameters if tokens_per_second else FLOPS)
    at_once = busy * length * min(own_rows, max(1, settings.tokens_at_once // length))
    gathered = weights / LINK_SPEED / at_once * several  # of each token: all weights, once for all of a pass
    label_token = work * shape.parameters / flops + (2 if settings.lora_rank else 3) * gathered
    scored = 2 * shape.parameters / flops
    cached = settings.distill.max_new_tokens / 4 * shape.cache_bytes / MEMORY_SPEED / busy
    launches = LAYER_PASS * shape.layers * (2 if settings.lora_rank else 1)
    return Rates(
        load=weights / DISK_SPEED,
        step=weights / LINK_SPEED * several,
        label_token=label_token,
        taught_token=label_token + scored + (0.0 if settings.lora_rank else gathered),  # a teacher is shared out, too
        scored_token=scored,
        decode_pass=max(weights / MEMORY_SPEED, launches),
        written_token=scored + cached,
        open_engine=0.0,
        ends={REPLY: chance_of_end(0, 0, settings.distill.max_new_tokens)},
    )
