"""The bytes that a training really takes on a processor: of its tensors by part, and of the heap at its highest.

python -m tests.pipelines.machine.live_memory FOLDER    # measures FOLDER/cases.pt; also under torchrun
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, GemmaConfig, LlamaConfig, MistralConfig, Qwen3Config

from pipelines.settings.schema import Distill, Midtrain, Settings
from recovery.distributed import join, leave, processes, rank, together
from recovery.losses.objectives import Divergence
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.processes import Member
from recovery.samples import Sample
from recovery.signals import TeacherSignal
from recovery.teachers import AdapterOffTeacher, FrozenTeacher
from recovery.telemetry.step_record import StepMetrics
from recovery.train import Plan, TrainState
from tests.models import tiny_tokenizer

T = TypeVar("T")

ROW, TOKENS, PASSES = 128, 1024, 3
FAMILIES: dict[str, Any] = {"qwen": Qwen3Config, "llama": LlamaConfig, "mistral": MistralConfig, "gemma": GemmaConfig}


@dataclass(frozen=True)
class Case:
    family: str = "qwen"
    rank: int = 0
    checkpointing: bool = False
    bf16: bool = False
    tied: bool = False
    hidden: int = 256
    vocabulary: int = 512
    layers: int = 6

    def save(self, folder: Path) -> Path:
        """In bfloat16, so that a loaded model has memory of its own and no part of a file."""
        config = FAMILIES[self.family](
            vocab_size=self.vocabulary, hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=8,
            num_key_value_heads=2, head_dim=self.hidden // 4, intermediate_size=3 * self.hidden,
            tie_word_embeddings=self.tied, max_position_embeddings=1024, pad_token_id=0,
        )  # fmt: skip
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
        return folder

    @property
    def settings(self) -> Settings:
        """Those that the training of this case has."""
        return Settings(
            lora_rank=self.rank,
            bf16=self.bf16,
            checkpointing=self.checkpointing,
            tokens_at_once=TOKENS,
            midtrain=Midtrain(window=ROW, rows=PASSES * TOKENS // ROW),
            distill=Distill(max_new_tokens=ROW, rows=1),
        )


class _Libc:
    class Mallinfo(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e used f g".split()]

    @classmethod
    def mallinfo(cls) -> Any:
        function = ctypes.CDLL(None).mallinfo2
        function.restype = cls.Mallinfo
        return function()


def can_measure() -> bool:
    """Whether C's library is glibc 2.33 or newer."""
    try:
        return bool(_Libc.mallinfo())
    except (AttributeError, OSError):
        return False


def heap_bytes() -> int:
    """What this process has allocated and not freed, in all its threads."""
    state = _Libc.mallinfo()
    return int(state.used + state.mapped)


class HeapPeak(TorchDispatchMode):
    """The highest heap after any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # then the operations on its part come here
        result = operation(*args, **kwargs or {})
        self.bytes = max(self.bytes, heap_bytes())
        return result


def measured(run: Callable[[], T]) -> tuple[T, int, int]:
    """(its result, the highest heap, the heap after it)."""
    with HeapPeak() as peak:
        result = run()
    gc.collect()
    return result, peak.bytes, heap_bytes()


def measure(case: Case, folder: Path) -> dict[str, int]:
    """A whole training but its data: loading, and two steps of several passes."""
    plan, objective, several = _plan(case), Divergence(0.0), processes() > 1

    def begin() -> tuple[Student, TeacherSignal, Any]:
        student, signal = _load(case, str(folder))
        if several:
            with together():
                return student, signal, Member(student, signal, objective, plan)
        if plan.checkpointing:
            student.causal.gradient_checkpointing_enable()
        return student, signal, TrainState.start(student, plan)

    def step() -> None:
        if several:
            with together():
                training.step(rows, 0, 0)
        else:
            training.take_step(student, rows, signal, objective, plan, StepMetrics())

    targets = [False, *[True] * (ROW - 1)]
    rows = [Sample([3 + i % 250] * ROW, targets) for i in range(PASSES * processes() * TOKENS // ROW)]
    gc.collect()
    before = heap_bytes()
    (student, signal, training), loading, _ = measured(begin)
    step()
    _, in_a_step, between = measured(step)
    model = training.weights.sharded if several else student.model
    state = training.state if several else training
    return {
        "weights": _bytes(model.parameters()),
        "gradients": _bytes(p.grad for p in model.parameters() if p.grad is not None),
        "optimizer": _bytes(value for values in state.optimizer.state.values() for value in values.values()),
        "while_loading": loading - before,
        "in_a_step": in_a_step - before,
        "between_steps": between - before,
    }


def _plan(case: Case) -> Plan:
    return Plan(10, 1e-3, tokens_at_once=TOKENS, bf16=case.bf16, checkpointing=case.checkpointing)


def _load(case: Case, path: str) -> tuple[Student, TeacherSignal]:
    student = load_student(path, adapter=Adapter(rank=case.rank) if case.rank else None)
    if case.rank:
        return student, TeacherSignal(AdapterOffTeacher(student, path))
    teacher = FrozenTeacher(path)
    teacher.bind_student(student)
    return student, TeacherSignal(teacher)


def _bytes(tensors: Iterable[Any]) -> int:
    parts = (t.to_local() if hasattr(t, "to_local") else t for t in {id(t): t for t in tensors}.values())
    return sum(part.numel() * part.element_size() for part in parts)


def main(folder: Path) -> None:
    cases: list[Case] = torch.load(folder / "cases.pt", weights_only=False)
    join()
    measure(cases[0], folder / "0")  # what is imported late is in no measurement
    results = [measure(case, folder / str(i)) for i, case in enumerate(cases)]
    if rank() == 0:
        (folder / "results.json").write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
