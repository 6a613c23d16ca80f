"""Who writes and reads for a model: its own modules, or vLLM where the settings say so."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student


@contextmanager
def open_engine(student: Student, name: str) -> Iterator[Any]:
    if name != "vllm":
        yield TransformersEngine(student)
        return
    from recovery.engines.vllm import VllmEngine

    engine = VllmEngine(student)
    try:
        yield engine
    finally:
        engine.close()
