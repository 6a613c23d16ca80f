"""Shared by the benchmarks: a model to measure on, timing another trainer and ours in alternation."""

import copy
import os
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.scripts import script_parser, table
from benchmarks.training_memory import Case
from recovery.lab import BASE
from recovery.models.students import Student, load_student

RATE = 1e-4
REAL_MODELS = {"qwen3-0.6b": Case(shape="qwen3-0.6b", layers=28, vocabulary=151_936)}


def speed_parser(description: str | None, *, steps: int) -> ArgumentParser:
    """The arguments that the speed benchmarks share."""
    parser = script_parser(description)
    parser.add_argument("--model", help="a model folder (default: the lab's base)")
    parser.add_argument("--shape", choices=REAL_MODELS, help="use random weights of a real model's shape instead")
    parser.add_argument("--steps", type=int, default=steps, help=f"timed steps per side (default {steps})")
    parser.add_argument("--warmup", type=int, default=1, help="steps per side before timing starts (default 1)")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast, both sides")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for both sides (default: all cores)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--profile", action="store_true", help="afterwards, profile one more step of each side")
    return parser


def model_folder(model: str | None, shape: str | None) -> str:
    """The model to measure: random weights of a shape (in /tmp, in bfloat16), the given folder, or the lab's base."""
    if not shape:
        return model or str(BASE)
    folder = Path(tempfile.gettempdir()) / f"recover-benchmark-{shape}"
    if not (folder / "model.safetensors").is_file():
        REAL_MODELS[shape].save(folder)
    return str(folder)


def perturbed(folder: str, device: str) -> Student:
    """A copy that differs from the original: noise of a tenth of its standard deviation is added to each matrix."""
    student = load_student(folder, device=device)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in student.model.parameters():
            if weight.ndim == 2:
                weight += 0.1 * float(weight.std()) * torch.randn(weight.shape, generator=generator).to(weight.device)
    return student


def clone(student: Student) -> Student:
    """A copy of the student, for the other trainer."""
    return Student(copy.deepcopy(student.model), student.chat, student.path)


@dataclass(frozen=True)
class Clock:
    """Wall time and processor time in seconds; on a shared machine, processor time varies less."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Clock":
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: "Clock") -> "Clock":
        return Clock(self.wall - start.wall, self.cpu - start.cpu)


def trainer_settings(args: Any, steps: int) -> dict[str, Any]:
    """Of a transformers `Trainer`: as many rows and the same optimiser as ours. Nothing is saved or reported."""
    return {
        "output_dir": tempfile.gettempdir(),
        "per_device_train_batch_size": args.rows,
        "max_steps": steps,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "bf16": args.bf16,
        "use_cpu": args.device == "cpu",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def time_alternating(trainer: Any, ours: Iterator[Any], warmup: int) -> tuple[list[Clock], list[Clock], list[Any]]:
    """Time the steps of a transformers `Trainer` and of our loop, one step of each in turn, in one process.

    The time between the trainer's steps (loading rows, logging) is left out.
    """
    from transformers import TrainerCallback

    times: tuple[list[Clock], list[Clock]] = ([], [])
    records: list[Any] = []

    class Alternate(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = Clock.now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            now = Clock.now()
            times[0].append(now.since(self.start))
            records.append(next(ours))
            times[1].append(Clock.now().since(now))

    trainer.add_callback(Alternate())
    trainer.train()
    return times[0][warmup:], times[1][warmup:], records[warmup:]


@dataclass(frozen=True)
class Side:
    """What one trainer did in the steps that were timed."""

    name: str
    tokens: Sequence[float]  # of each step
    times: Sequence[Clock]
    more: Sequence[str]  # further cells of its row

    @property
    def speed(self) -> Clock:
        """Tokens per second of wall and of processor time, over all steps together as replies differ in length."""
        tokens = sum(self.tokens)
        return Clock(tokens / sum(t.wall for t in self.times), tokens / sum(t.cpu for t in self.times))


def compare_speeds(args: Any, what: str, peer: Side, ours: Side, more: Sequence[str]) -> float:
    """Print both sides' speed; return ours as a multiple of the peer's."""
    precision = "bf16" if args.bf16 else "float32"
    print(f"{what}, {precision}, {args.threads} threads, {args.steps} alternating steps per side")
    rows = [
        [
            side.name,
            f"{median([t.wall for t in side.times]):.2f}",
            f"{median(side.tokens):.0f}",
            f"{side.speed.wall:.0f}",
            f"{side.speed.wall / peer.speed.wall:.2f}",
            f"{side.speed.cpu:.0f}",
            f"{side.speed.cpu / peer.speed.cpu:.2f}",
            *side.more,
        ]
        for side in (peer, ours)
    ]
    table(["", "s/step", "tokens/step", "tokens/s", "ratio", "tokens/CPU s", "ratio", *more], rows)
    return ours.speed.wall / peer.speed.wall


def print_profile(name: str, step: Callable[[], Any]) -> None:
    """Print the time of one step by operator."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=kinds) as profiler:
        step()
    order = f"self_{'cuda' if torch.cuda.is_available() else 'cpu'}_time_total"
    print(f"\n{name}\n{profiler.key_averages().table(sort_by=order, row_limit=12)}")
