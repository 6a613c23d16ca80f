"""What the benchmarks share: a model to measure on, another's trainer stepped in turns with ours, a small table."""

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from recovery.lab import BASE
from recovery.lab.training.build import SIZES, build
from recovery.models.students import Student, load_student


def parser(about: str | None, *, steps: int) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--model", help="a model folder (default: the lab's own, or a stand-in of its shape)")
    options.add_argument("--shape", choices=SHAPES, help="instead: random weights of a real model's shape")
    options.add_argument("--steps", type=int, default=steps, help=f"timed steps of each (default {steps})")
    options.add_argument("--warmup", type=int, default=1, help="steps of each before the clock runs (default 1)")
    options.add_argument("--bf16", action="store_true", help="bfloat16 autocast, both sides")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="for both sides (default: all cores)")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--profile", action="store_true", help="then one more step of each under the profiler")
    return options


SHAPES = {
    "qwen3-0.6b": {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "tie_word_embeddings": True,
    }
}


def shaped(name: str) -> str:
    """Random weights in bfloat16 of a real model's shape, with the lab's tokenizer; made once a day."""
    folder = Path(tempfile.gettempdir()) / f"recover-benchmark-{name}"
    if not (folder / "model.safetensors").is_file():
        tokenizer = AutoTokenizer.from_pretrained(BASE)
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPES[name], **ends))
        tokenizer.save_pretrained(folder)
        model.to(torch.bfloat16).save_pretrained(folder)
    return str(folder)


def model_folder(asked: str | None, shape: str | None = None) -> str:
    """The lab's model; where it is not shipped, one of its shape and tokenizer, hardly trained."""
    if shape:
        return shaped(shape)
    if asked:
        return asked
    if (BASE / "config.json").is_file():
        return str(BASE)
    stand_in = Path(tempfile.gettempdir()) / "recover-benchmark-model"
    if not (stand_in / "recover.json").is_file():
        build(stand_in, next(iter(SIZES)), tokens=8192 * 20, seed=0)
    return str(stand_in)


def perturbed(folder: str, device: str, by: float = 0.1) -> Student:
    """A copy that has something to learn from the original: each matrix moved by a tenth of its own spread."""
    student = load_student(folder, device=device)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in student.model.parameters():
            if weight.ndim == 2:
                weight += by * float(weight.std()) * torch.randn(weight.shape, generator=random).to(weight.device)
    return student


def twin(student: Student) -> Student:
    """The same weights, to be trained by someone else."""
    return Student(copy.deepcopy(student.model), student.chat, student.path)


@dataclass(frozen=True)
class Clock:
    """Seconds by the wall, and of processor time: on a machine shared with others the second is the steadier."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Clock":
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return cls(time.perf_counter(), time.process_time())

    def since(self, began: "Clock") -> "Clock":
        return Clock(self.wall - began.wall, self.cpu - began.cpu)


def in_turns(theirs: Any, ours: Iterator[Any], steps: int, warmup: int) -> tuple[list[Clock], list[Clock], list[Any]]:
    """What a step of a transformers `Trainer` and of our loop takes, one step of each in turn, in one process.

    `theirs` must have been given `steps + warmup` steps. What happens between the trainer's steps (fetching the next
    rows, writing its log) is not held against it."""
    from transformers import TrainerCallback

    seconds: tuple[list[Clock], list[Clock]] = ([], [])
    records: list[Any] = []

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = Clock.now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            now = Clock.now()
            seconds[0].append(now.since(self.began))
            records.append(next(ours))
            seconds[1].append(Clock.now().since(now))

    theirs.add_callback(Turns())
    theirs.train()
    assert len(records) == steps + warmup
    return seconds[0][warmup:], seconds[1][warmup:], records[warmup:]


def profiled(name: str, step: Callable[[], Any]) -> None:
    """Where one step's time goes, operator by operator."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=kinds) as measured:
        step()
    order = f"self_{'cuda' if torch.cuda.is_available() else 'cpu'}_time_total"
    print(f"\n{name}\n{measured.key_averages().table(sort_by=order, row_limit=12)}")


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, columns aligned, so that it reads in a terminal and can be pasted."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * (w - (i > 0)) + ":" * (i > 0) for i, w in enumerate(widths)], *rows]
    for line in lines:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
