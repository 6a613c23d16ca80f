"""Check whether training fits into this machine's memory, before any model is loaded."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from pipelines.machine.model_shape import ModelShape
from pipelines.machine.training_memory import Device, Teacher, kv_cache, training_memory
from pipelines.settings.engine_choice import choose_engine
from pipelines.settings.resolve import as_text
from pipelines.settings.schema import Settings
from recovery.distributed import processes
from recovery.errors import RecoverError
from recovery.models.adapters import base_of, same_model
from recovery.models.students import config_of
from recovery.recipes import recipe


def check_memory(student: str, settings: Settings, *teachers: Sequence[str], generates: bool = True) -> None:
    """Raise if training needs more memory than there is.

    Each sequence in `teachers` is a set of models that are loaded together, beside the student. The student
    `generates` replies while it is trained, unless it is only mid-trained."""

    def required_with(changed: Settings) -> float:
        device = this_machine()
        replies = kv_cache(shape, changed, device) if device.is_gpu and generates else 0.0
        return required_bytes(student, changed, teachers, replies)

    shape, required, available = ModelShape.of(student), required_with(settings), total_memory()
    if required <= available:
        return
    estimates = [
        (f"{name} = {as_text(value)}", required_with(settings.model_copy(update={name: value})))
        for name, value in cheaper_settings(settings).items()
    ]
    advice = [
        f" With {change} it would take about {_gigabytes(estimate)}."
        for change, estimate in estimates
        if estimate < 0.95 * required
    ]
    raise RecoverError(
        f"The model {student} has {shape.parameters / 1e9:.1f} billion parameters. Training it takes about "
        f"{_gigabytes(required)} of memory and this machine has {_gigabytes(available)}."
        + ("".join(advice) or " Choose a smaller model, or a machine with more memory.")
    )


def cheaper_settings(settings: Settings) -> dict[str, Any]:
    """Settings that take less memory, by name, where they are not as they are already."""
    values = {
        "lora_rank": settings.lora_rank or 64,
        "checkpointing": True,
        "tokens_at_once": min(2048, settings.tokens_at_once),
    }
    return {name: value for name, value in values.items() if value != getattr(settings, name)}


def check_window(base: str, settings: Settings) -> None:
    """Raise if rows are longer than the model's context."""
    context = getattr(config_of(base).get_text_config(), "max_position_embeddings", None)
    window = settings.midtrain.window
    if not 2 <= window <= (context or window):
        limits = f"from 2 to {context}" if context else "at least 2"
        raise RecoverError(f"The setting midtrain.window must be {limits} tokens, not {window}.")


def total_memory() -> int:
    """Bytes of the GPU, or of the machine if it has none."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def this_machine() -> Device:
    return Device(total_memory(), processes(), torch.cuda.is_available())


def required_bytes(student: str, settings: Settings, teachers: Sequence[Sequence[str]], replies: float = 0.0) -> float:
    """What training takes at its peak: of a GPU, or of the machine for all its processes. `replies` is the cache of
    the replies that are generated at once."""
    shape, device = ModelShape.of(student), this_machine()
    uses_vllm = device.is_gpu and choose_engine(settings.engine, shape.parameters) == "vllm"
    each = max(
        training_memory(
            shape, settings, [teacher(name, student, settings) for name in names], device, replies, uses_vllm=uses_vllm
        ).peak
        for names in teachers or [()]
    )
    return each if device.is_gpu else each * int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def teacher(name: str, student: str, settings: Settings) -> Teacher:
    """Its weights, unless they are those under the student's adapter. One that writes is a copy of its own."""
    shape, writes = ModelShape.of(name), recipe(settings.distill.recipe).continued is not None
    shared = settings.lora_rank and same_model(base_of(student) or student, base_of(name) or name)
    if writes or not shared:
        return Teacher(shape.parameters, shape.head)
    return Teacher(shape.adapter(settings.lora_rank) if base_of(name) else 0, shape.head)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.0f} GB"
