"""Memory of training by part: as `recover plan` computes it, and as processes on this machine hold it.

    python -m benchmarks.training_memory [--processes 2] [--shape qwen3-0.6b]

Models with random weights are loaded, trained for two steps of three passes, and generate replies. What a process
holds is what it has allocated, so neither Python's libraries nor the allocator's reserves are in it.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.scripts import script_parser, table
from pipelines.model_loading import frozen_dtype, load_trained
from pipelines.settings.schema import Distill, Midtrain, Settings
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from pipelines.training_memory import Device, ModelShape, Teacher, kv_cache, sums, training_memory
from recovery.distributed import join, leave, processes, rank, together
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import Student
from recovery.objectives import Divergence
from recovery.processes import Member
from recovery.samples import Sample
from recovery.signals import TeacherSignal
from recovery.teachers import AdapterOffTeacher, FrozenTeacher
from recovery.telemetry import StepMetrics
from recovery.train import Learning, Plan, TrainState

T = TypeVar("T")
ROW, TOKENS, PASSES, REPLIES = 128, 1024, 3, 16
LARGE = 2**15  # bytes of a result; asking for the heap takes longer than most smaller operations
# (hidden, heads, heads of keys and values, width of a head, inner, tied) of the real models.
SHAPES = {
    "small": (256, 8, 2, 64, 768, False),
    "qwen3-0.6b": (1024, 16, 8, 128, 3072, True),
    "qwen3-8b": (4096, 32, 8, 128, 12_288, False),
}
PHASES = ("while loading", "in a step", "between steps")


@dataclass(frozen=True)
class Case:
    rank: int = 0
    bf16: bool = False
    checkpointing: bool = False
    family: str = "qwen3"
    shape: str = "small"
    layers: int = 6
    vocabulary: int = 2048
    reply: int = 24  # tokens

    @property
    def name(self) -> str:
        parts = [f"adapter {self.rank}" if self.rank else "all weights", "bfloat16" if self.bf16 else "float32"]
        parts += ["checkpointing"] * self.checkpointing + [self.family] * (self.family != "qwen3")
        parts += [f"layers: {self.layers}"] * (self.layers != Case.layers)
        parts += [f"a vocabulary of {self.vocabulary:,}"] * (self.vocabulary != Case.vocabulary)
        return ", ".join(parts + [f"replies of {self.reply}"] * (self.reply != Case.reply))

    @property
    def settings(self) -> Settings:
        """Those that the training of this case has."""
        return Settings(
            lora_rank=self.rank,
            bf16=self.bf16,
            checkpointing=self.checkpointing,
            tokens_at_once=TOKENS,
            midtrain=Midtrain(window=ROW, rows=PASSES * TOKENS // ROW),
            distill=Distill(max_new_tokens=self.reply, rows=REPLIES, probe_every=0),
        )

    def save(self, folder: Path) -> None:
        """In bfloat16, so that a loaded model has memory of its own and no part of a file."""
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        hidden, heads, key_value_heads, head, inner, tied = SHAPES[self.shape]
        config = AutoConfig.for_model(
            self.family, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=key_value_heads,
            head_dim=head, intermediate_size=inner, tie_word_embeddings=tied, num_hidden_layers=self.layers,
            vocab_size=self.vocabulary, max_position_embeddings=4096, pad_token_id=0, eos_token_id=2, bos_token_id=None,
        )  # fmt: skip
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        torch.set_default_dtype(torch.float32)
        AutoTokenizer.from_pretrained(BASE).save_pretrained(folder)


SMALL_CASES = [
    Case(),
    Case(bf16=True),
    Case(bf16=True, checkpointing=True),
    Case(rank=16),
    Case(rank=16, bf16=True),
    Case(rank=16, bf16=True, checkpointing=True),
    Case(bf16=True, checkpointing=True, vocabulary=16_384),
    Case(bf16=True, family="llama"),
    Case(layers=12, reply=280),
]
CASES = {
    "small": SMALL_CASES,
    "qwen3-0.6b": [
        Case(shape="qwen3-0.6b", layers=2, bf16=True),
        Case(shape="qwen3-0.6b", layers=2, bf16=True, rank=64),
    ],
    "qwen3-8b": [Case(shape="qwen3-8b", layers=1, bf16=True, rank=128)],  # a layer has 193 million parameters
}


@dataclass(frozen=True)
class Comparison:
    """Bytes of each process by part: seen, and as computed."""

    case: Case
    seen: dict[str, int]
    computed: dict[str, float]

    def error(self, part: str) -> float:
        return self.computed[part] / self.seen[part] - 1


def compare(cases: Sequence[Case], count: int = 1) -> list[Comparison]:
    """The cases, trained one after the other by `count` new processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, case in enumerate(cases):
            case.save(folder / str(i))
        (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
        torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m"] * (count > 1)
        command = [sys.executable, "-m", *torchrun, "benchmarks.training_memory", "--measure", name]
        # Weights that are read in other threads are freed at a time of their own.
        environment = os.environ | {"HF_DEACTIVATE_ASYNC_LOAD": "1"}
        subprocess.run(command, env=environment, stdout=sys.stderr, check=True)
        seen = json.loads((folder / "seen.json").read_text())
        return [Comparison(case, seen[i], computed(case, str(folder / str(i)), count)) for i, case in enumerate(cases)]


def computed(case: Case, folder: str, count: int) -> dict[str, float]:
    shape, settings, device = ModelShape.of(folder), case.settings, Device(8e9, count, is_gpu=False)
    teachers, replies = [Teacher.of(folder, folder, settings)], kv_cache(shape, settings, device)
    memory = training_memory(shape, settings, teachers, device, replies)
    return memory["in a step"] | sums(memory)


def measure(case: Case, folder: str) -> dict[str, int]:
    """A training with a teacher, but for its data: loading, two steps of several passes, and replies."""
    plan = Plan(10, 1e-3, tokens_at_once=TOKENS, bf16=case.bf16, checkpointing=case.checkpointing)
    objective, several = Divergence(0.0), processes() > 1

    def begin() -> tuple[Student, TeacherSignal, Any]:
        student, signal = _load(case, folder)
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
            training.take_step(Learning(student, signal, objective, plan), rows, StepMetrics())

    def reply() -> None:
        engine, sampling = TransformersEngine(student), Sampling(case.reply)
        if several:
            with together():
                training.generate(prompts, sampling, engine.batches(prompts, case.reply))
        else:
            engine.generate(prompts, sampling)

    rows = [
        Sample([3 + i % 250] * ROW, [False, *[True] * (ROW - 1)]) for i in range(PASSES * processes() * TOKENS // ROW)
    ]
    prompts = [[3 + i] * MAX_PROMPT_TOKENS for i in range(REPLIES)]
    gc.collect()
    before = heap_bytes()
    (student, signal, training), loading = with_peak(begin)
    step()
    _, in_a_step = with_peak(step)
    _, between = with_peak(reply)
    model = training.weights.sharded if several else student.model
    state = training.state if several else training
    return {
        "weights": _bytes(model.parameters()),
        "optimiser": _bytes(value for values in state.optimizer.state.values() for value in values.values()),
        "while loading": loading - before,
        "in a step": in_a_step - before,
        "between steps": between - before,
    }


def _load(case: Case, path: str) -> tuple[Student, TeacherSignal]:
    student = load_trained(path, Adapter(rank=case.rank) if case.rank else None, bf16=case.bf16)
    for (
        parameter
    ) in student.model.parameters():  # weights in the file's precision are the mapped file: no heap has them
        parameter.data = parameter.data.clone()
    if case.rank:
        return student, TeacherSignal(AdapterOffTeacher(student, path))
    teacher = FrozenTeacher(path, dtype=frozen_dtype(path, case.bf16))
    teacher.bind_student(student)
    return student, TeacherSignal(teacher)


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ["arena", "a", "b", "c", "mapped", "d", "e", "used", "f", "g"]]


def can_measure() -> bool:
    """Whether C's library is glibc 2.33 or newer."""
    try:
        return bool(_mallinfo()())
    except (AttributeError, OSError):
        return False


def heap_bytes() -> int:
    """What this process has allocated and not freed, in all its threads."""
    state = _mallinfo()()
    return int(state.used + state.mapped)


def with_peak(run: Callable[[], T]) -> tuple[T, int]:
    """What it returns, and the most bytes on the heap after any operation of torch."""
    with _HeapPeak() as peak:
        result = run()
    gc.collect()
    return result, peak.bytes


class _HeapPeak(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # then the operations on its part come here
        result = operation(*args, **kwargs or {})
        results = result if isinstance(result, tuple | list) else [result]
        if any(isinstance(tensor, torch.Tensor) and tensor.nbytes >= LARGE for tensor in results):
            self.bytes = max(self.bytes, heap_bytes())
        return result


@cache
def _mallinfo() -> Any:
    function = ctypes.CDLL(None).mallinfo2
    function.restype = _Mallinfo
    return function


def _bytes(tensors: Iterable[Any]) -> int:
    parts = (t.to_local() if hasattr(t, "to_local") else t for t in {id(t): t for t in tensors}.values())
    return sum(part.numel() * part.element_size() for part in parts)


def _measure_all(folder: Path) -> None:
    cases = [Case(**case) for case in json.loads((folder / "cases.json").read_text())]
    if "WORLD_SIZE" in os.environ:
        join()
    # What is imported late, and buffers that the libraries keep, are in no measurement.
    for i in {case.bf16: i for i, case in reversed([*enumerate(cases)])}.values():
        measure(replace(cases[i], reply=Case.reply), str(folder / str(i)))
    seen = [measure(case, str(folder / str(i))) for i, case in enumerate(cases)]
    if rank() == 0:
        (folder / "seen.json").write_text(json.dumps(seen))
    leave()


def main(arguments: list[str] | None = None) -> list[Comparison]:
    parser = script_parser(__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shape", choices=SHAPES, default="small", help="(default: small)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.measure:
        _measure_all(args.measure)
        return []
    comparisons = compare(CASES[args.shape], args.processes)
    head = ["MB of each process: computed / seen", "loading", "in a step", "between steps", "largest difference"]
    table(head, [_row(comparison) for comparison in comparisons])
    return comparisons


def _row(comparison: Comparison) -> list[str]:
    cells = [f"{comparison.computed[phase] / 1e6:,.0f} / {comparison.seen[phase] / 1e6:,.0f}" for phase in PHASES]
    return [comparison.case.name, *cells, f"{max((comparison.error(phase) for phase in PHASES), key=abs):+.0%}"]


if __name__ == "__main__":
    main()
