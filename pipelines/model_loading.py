"""Open a model for generation or scoring: on this machine's device, with transformers, vLLM or vLLM servers; and check
those servers before anything is trained."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib.util import find_spec

import torch

from evals.subject import Subject
from pipelines.log import log
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, choose_engine
from pipelines.settings.sources import EngineName
from recovery.engines import Engine
from recovery.engines.http import HttpEngine
from recovery.engines.served_model import identify, linear_layers, serve_command
from recovery.engines.servers import Server, Unavailable, is_address, parse_addresses
from recovery.engines.vllm import VllmEngine
from recovery.errors import RecoverError
from recovery.hardware import give_back_freed_memory, has_bfloat16
from recovery.models.adapters import Adapter, base_of, saved_biases, saved_modules
from recovery.models.students import Student, load_chat, load_student, parameters_of
from recovery.processes import SharedEngine

OpenSubject = Callable[[], AbstractContextManager[Subject]]  # loads a model only when it is needed


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def frozen_dtype(path: str, bf16: bool | None = None) -> torch.dtype:
    """bfloat16, except for small models; `bf16` is the setting of a training, by default what the machine has units
    for."""
    large = parameters_of(path) > SMALL_MODEL_PARAMETERS
    return torch.bfloat16 if large and (has_bfloat16() if bf16 is None else bf16) else torch.float32


def engine_and_precision(path: str, engine: EngineName) -> str:
    """What a frozen model answers with: of another library, or in another precision, some greedy replies differ."""
    if is_address(engine):
        return "servers"
    return f"{choose_engine(engine, parameters_of(path))} {frozen_dtype(path)}"


def load_trained(path: str, adapter: Adapter | None, *, bf16: bool) -> Student:
    """A model to train: its trained weights in float32, those below an adapter as frozen models have them."""
    is_frozen_below = not (saved_modules(path) or saved_biases(path)) if base_of(path) else adapter is not None
    dtype = frozen_dtype(path, bf16) if is_frozen_below else torch.float32
    return load_student(path, adapter=adapter, dtype=dtype, device=device())


def load_frozen(path: str) -> Student:
    """A model that is not trained. What a training before it has left is returned to the system first."""
    gc.collect()
    give_back_freed_memory(torch.device("cpu"))
    return load_student(path, frozen=True, dtype=frozen_dtype(path), device=device())


@contextmanager
def open_engine(student: Student, name: EngineName) -> Iterator[Engine]:
    """The engine of that name for a loaded model. Where `auto` chooses vLLM and vLLM refuses, transformers serves."""
    if is_address(name):
        with closing(HttpEngine(student, name)) as served:
            yield served
        return
    if choose_engine(name, parameters_of(student.path)) == "vllm":
        try:
            vllm = VllmEngine(student)
        except RecoverError as error:
            if name == "vllm":
                raise
            log.warning(f"Engine: transformers, since vLLM cannot be used: {error}")
        else:
            with closing(vllm):
                yield vllm
            return
    yield SharedEngine(student)


@contextmanager
def open_subject(path: str, engine: EngineName) -> Iterator[Subject]:
    """A frozen model loaded from `path`, ready to answer prompts."""
    model = load_frozen(path)
    with open_engine(model, engine) as opened:
        yield Subject(opened, model.chat)


def check_engine(engine: EngineName) -> None:
    """Raise unless the library that is to generate on this machine is installed."""
    if engine == "vllm" and find_spec("vllm") is None:
        raise RecoverError(
            "vLLM is not installed. Install recover's extra `vllm`, or generate with --engine transformers."
        )


def check_servers(base: str, engine: EngineName, rank: int, of_teacher: str | None) -> None:
    """Raise unless each answers and has the base's tokenizer; where none answers, the sentence says how to start it."""
    engines = parse_addresses(engine) if is_address(engine) else []
    if engines and not rank:
        raise RecoverError(
            "vLLM servers generate for adapters, and this trains full weights. Train an adapter (--set lora_rank=128), "
            "or generate on this machine (--engine auto)."
        )
    layers = linear_layers(base) if engines else []
    for address in dict.fromkeys([*engines, *(parse_addresses(of_teacher) if of_teacher else [])]):
        server = Server(address, timeout=30.0)
        try:
            identify(server, load_chat(base))
        except Unavailable as error:
            command = serve_command(server, base, rank if address in engines else 0, layers)
            raise RecoverError(f"No vLLM server answers at {address} ({error}). Start one: {command}") from error
