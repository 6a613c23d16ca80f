"""The peak memory of a job: of training, with the replies that are generated in between."""

import psutil

from pipelines.estimates.work import BATCH
from pipelines.machine.calibration import Rates
from pipelines.machine.memory_check import required_bytes, this_machine, total_memory
from pipelines.machine.model_shape import ModelShape
from pipelines.settings.schema import Settings
from recovery.host_memory import GROWTH

GENERATION_SHARE = 0.5  # of the memory: an engine takes no more for one batch


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
    """Bytes for the models, besides those of the process: on a processor also what the allocator keeps of a step."""
    end = rates.ends.get("reply", 0.0)
    kept = max(_rows_left(end, step) * (prompt_tokens + step) for step in range(0, max_new_tokens + 1, 8))
    replies = min(kept * ModelShape.of(model).cache_bytes, GENERATION_SHARE * total_memory())
    required = required_bytes(model, settings, teachers, replies)
    return required if this_machine().is_gpu else required + min(GROWTH, required)


def _rows_left(end: float, step: int) -> float:
    """Rows of a full batch whose replies have not ended after so many tokens."""
    return float(BATCH * (1 - end) ** step)
