"""The peak memory of a job: of training, or of generating many replies at once."""

import psutil
import torch

from pipelines.estimates.work import BATCH
from pipelines.machine.calibration import Rates
from pipelines.machine.memory_check import FROZEN_BYTES, cache_bytes, total_memory, training_memory
from pipelines.settings.schema import Settings
from recovery.losses.chunked_loss import CHUNK_ELEMENTS, CHUNK_ELEMENTS_ON_GPU
from recovery.models.students import parameters_of

GENERATION_SHARE = 0.5  # of the memory: an engine takes no more for one batch
CHUNK_TENSORS = 8  # of positions × vocabulary that a loss with a teacher needs at once, in float32


def process_memory() -> int:
    """Bytes in use now, without any model: Python and its libraries. Call it before a model is loaded."""
    return psutil.Process().memory_info().rss


def peak_memory(
    model: str,
    settings: Settings,
    teachers: tuple[list[str], list[str]],
    rates: Rates,
    prompt_tokens: float,
    max_new_tokens: int,
) -> float:
    """Bytes for the models, besides those of the process."""
    end = rates.ends.get("reply", 0.0)
    kept = max(_rows_left(end, step) * (prompt_tokens + step) for step in range(0, max_new_tokens + 1, 8))
    generating = parameters_of(model) * FROZEN_BYTES
    generating += int(min(kept * cache_bytes(model), GENERATION_SHARE * total_memory()))
    return max(float(generating), training_memory(model, settings, teachers) + _chunk_bytes())


def _chunk_bytes() -> float:
    """Of the loss over the vocabulary, which is computed for one chunk of positions at a time."""
    elements = CHUNK_ELEMENTS_ON_GPU if torch.cuda.is_available() else CHUNK_ELEMENTS
    return 4.0 * CHUNK_TENSORS * elements


def _rows_left(end: float, step: int) -> float:
    """Rows of a full batch whose replies have not ended after so many tokens."""
    return float(BATCH * (1 - end) ** step)
