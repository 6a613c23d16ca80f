"""Open a model for generation or scoring: on this machine's device, with transformers or with vLLM."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from evals.subject import Subject
from recovery.engines import Engine
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student, load_student

OpenSubject = Callable[[], AbstractContextManager[Subject]]  # loads a model only when it is needed


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_frozen(path: str) -> Student:
    return load_student(path, frozen=True, device=device())


@contextmanager
def open_engine(student: Student, name: str) -> Iterator[Engine]:
    """The engine of that name ("transformers" or "vllm") for a loaded model."""
    if name != "vllm":
        yield TransformersEngine(student)
        return
    from recovery.engines.vllm import VllmEngine

    engine = VllmEngine(student)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def open_subject(path: str, engine: str) -> Iterator[Subject]:
    """A frozen model loaded from `path`, ready to answer prompts."""
    model = load_frozen(path)
    with open_engine(model, engine) as opened:
        yield Subject(opened, model.chat)
