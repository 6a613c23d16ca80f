"""Reverse KL between two models' next-token distributions, with gradients: memory and time of three ways.

`plain` holds both models' logits and lets autograd do the rest; `TRL` is TRL's own chunked loss; `recover` is ours.
One after the other, round after round; peak memory is what was needed above the inputs. On a CPU each runs in a process
of its own, for memory that was used once is seldom given back; a GPU's allocator keeps the count itself.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import Clock, median, table
from recovery.losses.chunked_loss import Head, chunked_loss
from recovery.losses.objectives import Divergence
from recovery.signals import SignalBatch
from recovery.teachers import Distribution

WAYS = ("plain", "TRL", "recover")
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def plain(hidden: Tensor, weight: Tensor, teacher_hidden: Tensor, teacher_weight: Tensor) -> Tensor:
    student = torch.log_softmax((hidden @ weight.T).float(), -1)
    with torch.no_grad():
        teacher = torch.log_softmax((teacher_hidden @ teacher_weight.T).float(), -1)
    return (student.exp() * (student - teacher)).sum(-1).mean()


def trl(hidden: Tensor, weight: Tensor, teacher_hidden: Tensor, teacher_weight: Tensor) -> Tensor:
    from trl.trainer.distillation_trainer import _chunked_divergence_loss

    mask = torch.ones(1, len(hidden), device=hidden.device)
    loss, _, _ = _chunked_divergence_loss(hidden[None], teacher_hidden[None], weight, teacher_weight, mask, 1.0)
    return loss


def recover(hidden: Tensor, weight: Tensor, teacher_hidden: Tensor, teacher_weight: Tensor) -> Tensor:
    n, objective = len(hidden), Divergence(1.0)
    tokens = torch.zeros(n, dtype=torch.long, device=hidden.device)
    said = SignalBatch(tokens, Distribution(teacher_hidden, Head(teacher_weight)))
    weights = torch.full((n,), 1 / n, device=hidden.device)
    loss, _ = chunked_loss(hidden, Head(weight), lambda logits, part: objective(logits, said, part), weights)
    return loss


LOSSES: dict[str, Loss] = {"plain": plain, "TRL": trl, "recover": recover}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--positions", type=int, default=1024)
    options.add_argument("--hidden", type=int, default=1024)
    options.add_argument("--vocabulary", type=int, default=151_936)
    options.add_argument("--bf16", action="store_true", help="hidden states and heads in bfloat16")
    options.add_argument("--head", choices=["frozen", "trained", "both"], default="both")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=os.cpu_count())
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--out", help=argparse.SUPPRESS)
    asked = options.parse_args(arguments)
    if asked.child:
        print(json.dumps(measure(asked)))
        return {}
    results = {}
    for head in ("frozen", "trained") if asked.head == "both" else (asked.head,):
        results[head] = compare(asked, head)
    return results


def compare(asked: Any, head: str) -> dict[str, float]:
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.rounds):
            for way in WAYS:
                runs[way].append(apart(asked, head, way, f"{folder}/{way}.pt"))
        saved = {way: torch.load(f"{folder}/{way}.pt", weights_only=True) for way in WAYS}
    memory = {way: median([r["bytes"] for r in runs[way]]) for way in WAYS}
    seconds = {way: median([r["seconds"] for r in runs[way]]) for way in WAYS}
    cpu = {way: median([r["cpu"] for r in runs[way]]) for way in WAYS}
    off_by = {way: furthest(saved[way], saved["plain"]) for way in WAYS}
    faster, faster_cpu = (min(each["plain"], each["TRL"]) for each in (seconds, cpu))
    print(f"\n{asked.positions} positions, {head} head, {'bf16' if asked.bf16 else 'float32'}, {asked.device}")
    table(
        ["", "peak MB", "of plain", "seconds", "ratio", "CPU seconds", "ratio", "loss", "gradient off by"],
        [
            [
                way,
                f"{memory[way] / 2**20:,.0f}",
                f"1/{memory['plain'] / memory[way]:.1f}",
                f"{seconds[way]:.2f}",
                f"{seconds[way] / faster:.2f}",
                f"{cpu[way]:.1f}",
                f"{cpu[way] / faster_cpu:.2f}",
                f"{runs[way][0]['loss']:.6f}",
                f"{off_by[way]:.1e}",
            ]
            for way in WAYS
        ],
    )
    return {
        "memory of plain": memory["recover"] / memory["plain"],
        "memory of TRL": memory["recover"] / memory["TRL"],
        "time of faster": seconds["recover"] / faster,
        "loss apart": abs(runs["recover"][0]["loss"] - runs["plain"][0]["loss"]),
        "gradient apart": off_by["recover"],
    }


def apart(asked: Any, head: str, way: str, out: str) -> dict[str, float]:
    if asked.device == "cuda":
        return measure(argparse.Namespace(**vars(asked) | {"head": head, "child": way, "out": out}))
    same = ("positions", "hidden", "vocabulary", "threads", "device")
    given = [f"--{name}={getattr(asked, name)}" for name in same] + ["--bf16"] * asked.bf16
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.divergence",
        *given,
        "--head",
        head,
        "--child",
        way,
        "--out",
        out,
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout.splitlines()[-1])


def measure(asked: Any) -> dict[str, float]:
    torch.set_num_threads(asked.threads)
    loss_of, dtype = LOSSES[asked.child], torch.bfloat16 if asked.bf16 else torch.float32
    once(loss_of, problem(8, 16, 32, dtype, asked.device), trained=True)  # imports and kernels, before the clock runs
    inputs = problem(asked.positions, asked.hidden, asked.vocabulary, dtype, asked.device)
    if asked.device == "cuda":
        once(loss_of, inputs, asked.head == "trained")
    before = start_watching(asked.device)
    began = Clock.now()
    loss, grads = once(loss_of, inputs, asked.head == "trained")
    took = Clock.now().since(began)
    peak = highest(asked.device) - before
    # Of the head's gradient the first rows are enough to compare.
    torch.save([grad[:2048].float().cpu() for grad in grads], asked.out)
    return {"loss": float(loss), "seconds": took.wall, "cpu": took.cpu, "bytes": peak}


def problem(positions: int, hidden: int, vocabulary: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Two models that differ a little, as a student and its teacher do."""
    random = torch.Generator(device=device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device, dtype=dtype)

    states, weight = normal(positions, hidden), normal(vocabulary, hidden).mul_(3 * hidden**-0.5)
    teacher_weight = normal(vocabulary, hidden).mul_(0.3 * hidden**-0.5).add_(weight)
    return [states, weight, states + 0.1 * normal(positions, hidden), teacher_weight]


def once(loss_of: Loss, inputs: list[Tensor], trained: bool) -> tuple[Tensor, list[Tensor]]:
    hidden, weight = inputs[0].detach().requires_grad_(), inputs[1].detach().requires_grad_(trained)
    loss = loss_of(hidden, weight, inputs[2], inputs[3])
    loss.backward()
    return loss.detach(), [t.grad for t in (hidden, weight) if t.grad is not None]


def start_watching(device: str) -> int:
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far becomes what there is now
    return highest(device)


def highest(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def furthest(grads: list[Tensor], others: list[Tensor]) -> float:
    """The largest difference, as a share of the largest entry."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, others, strict=True))


if __name__ == "__main__":
    main()
