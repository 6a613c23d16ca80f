"""Whether a model can be trained here at all, told before it is loaded."""

import os

import torch

from pipelines.settings import Settings
from recovery.errors import RecoverError
from recovery.students import parameters_of

FULL, FROZEN = 16, 4  # bytes a parameter: weights, gradient and two moments in float32; or weights alone
ADAPTER = 0.05  # of the parameters, at the usual ranks


def check_it_fits(base: str, settings: Settings, teachers: int = 1) -> None:
    """The student, its optimiser and its teachers beside it, if any; what the rollouts need comes on top."""
    count = parameters_of(base)
    whole = count * (FULL + teachers * FROZEN)
    # The teacher is the same weights, adapters off; another is one more adapter on them.
    adapter = count * (FROZEN + ADAPTER * (FULL + max(0, teachers - 1) * FROZEN))
    needed, there = (adapter if settings.lora_rank else whole), memory()
    if needed > there:
        smaller = "" if settings.lora_rank else f"; with lora_rank = 64 it would take about {_gigabytes(adapter)}"
        raise RecoverError(
            f"{base} has {count / 1e9:.1f} billion parameters: training it so takes about {_gigabytes(needed)} and "
            f"there are {_gigabytes(there)} here{smaller}"
        )


def memory() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.0f} GB"
