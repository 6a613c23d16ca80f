"""Reverse KL between two models' next-token distributions, with gradients: memory and time of three implementations.

    python -m benchmarks.divergence [--positions 1024] [--head frozen] [--bf16]

`plain` holds both models' logits and uses autograd; `TRL` is TRL's chunked loss; `recover` is ours. They run one after
the other, round after round; peak memory is counted above the inputs. On a CPU each runs in its own process, as freed
memory is seldom returned to the system; a GPU's allocator counts each separately.
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

from benchmarks.common import Clock, median
from benchmarks.scripts import table
from recovery.chunked_loss import Head, chunked_loss
from recovery.objectives import Divergence
from recovery.signals import SignalBatch
from recovery.teachers import Distribution

IMPLEMENTATIONS = ("plain", "TRL", "recover")
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
    batch = SignalBatch(tokens, Distribution(teacher_hidden, Head(teacher_weight)))
    weights = torch.full((n,), 1 / n, device=hidden.device)
    loss, _ = chunked_loss(hidden, Head(weight), lambda logits, part: objective(logits, batch, part), weights)
    return loss


LOSSES: dict[str, Loss] = {"plain": plain, "TRL": trl, "recover": recover}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--bf16", action="store_true", help="hidden states and heads in bfloat16")
    parser.add_argument("--head", choices=["frozen", "trained", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        print(json.dumps(measure(args)))
        return {}
    results = {}
    for head in ("frozen", "trained") if args.head == "both" else (args.head,):
        results[head] = compare(args, head)
    return results


def compare(args: Any, head: str) -> dict[str, float]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in IMPLEMENTATIONS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name in IMPLEMENTATIONS:
                runs[name].append(measure_separately(args, head, name, f"{folder}/{name}.pt"))
        saved = {name: torch.load(f"{folder}/{name}.pt", weights_only=True) for name in IMPLEMENTATIONS}
    memory = {name: median([r["bytes"] for r in runs[name]]) for name in IMPLEMENTATIONS}
    seconds = {name: median([r["seconds"] for r in runs[name]]) for name in IMPLEMENTATIONS}
    cpu = {name: median([r["cpu"] for r in runs[name]]) for name in IMPLEMENTATIONS}
    gradient_error = {name: largest_difference(saved[name], saved["plain"]) for name in IMPLEMENTATIONS}
    faster, faster_cpu = (min(times["plain"], times["TRL"]) for times in (seconds, cpu))
    print(f"\n{args.positions} positions, {head} head, {'bf16' if args.bf16 else 'float32'}, {args.device}")
    table(
        ["", "peak MB", "of plain", "seconds", "ratio", "CPU seconds", "ratio", "loss", "gradient error"],
        [
            [
                name,
                f"{memory[name] / 2**20:,.0f}",
                f"1/{memory['plain'] / memory[name]:.1f}",
                f"{seconds[name]:.2f}",
                f"{seconds[name] / faster:.2f}",
                f"{cpu[name]:.1f}",
                f"{cpu[name] / faster_cpu:.2f}",
                f"{runs[name][0]['loss']:.6f}",
                f"{gradient_error[name]:.1e}",
            ]
            for name in IMPLEMENTATIONS
        ],
    )
    return {
        "memory of plain": memory["recover"] / memory["plain"],
        "memory of TRL": memory["recover"] / memory["TRL"],
        "time of faster": seconds["recover"] / faster,
        "loss difference": abs(runs["recover"][0]["loss"] - runs["plain"][0]["loss"]),
        "gradient difference": gradient_error["recover"],
    }


def measure_separately(args: Any, head: str, name: str, out: str) -> dict[str, float]:
    if args.device == "cuda":
        return measure(argparse.Namespace(**vars(args) | {"head": head, "child": name, "out": out}))
    fields = ("positions", "hidden", "vocabulary", "threads", "device")
    flags = [f"--{field}={getattr(args, field)}" for field in fields] + ["--bf16"] * args.bf16
    flags += [f"--head={head}", f"--child={name}", f"--out={out}"]
    command = [sys.executable, "-m", "benchmarks.divergence", *flags]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(process.stderr)
    return json.loads(process.stdout.splitlines()[-1])


def measure(args: Any) -> dict[str, float]:
    torch.set_num_threads(args.threads)
    loss_of, dtype = LOSSES[args.child], torch.bfloat16 if args.bf16 else torch.float32
    # A small problem first loads modules and kernels, before timing starts.
    loss_and_gradients(loss_of, problem(8, 16, 32, dtype, args.device), trained=True)
    inputs = problem(args.positions, args.hidden, args.vocabulary, dtype, args.device)
    if args.device == "cuda":
        loss_and_gradients(loss_of, inputs, args.head == "trained")
    before = reset_peak(args.device)
    start = Clock.now()
    loss, grads = loss_and_gradients(loss_of, inputs, args.head == "trained")
    duration = Clock.now().since(start)
    peak = peak_memory(args.device) - before
    # The first rows of the head's gradient are enough to compare.
    torch.save([grad[:2048].float().cpu() for grad in grads], args.out)
    return {"loss": float(loss), "seconds": duration.wall, "cpu": duration.cpu, "bytes": peak}


def problem(positions: int, hidden: int, vocabulary: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Hidden states and heads of two slightly different models, as a student and its teacher."""
    generator = torch.Generator(device=device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=dtype)

    states, weight = normal(positions, hidden), normal(vocabulary, hidden).mul_(3 * hidden**-0.5)
    teacher_weight = normal(vocabulary, hidden).mul_(0.3 * hidden**-0.5).add_(weight)
    return [states, weight, states + 0.1 * normal(positions, hidden), teacher_weight]


def loss_and_gradients(loss_of: Loss, inputs: list[Tensor], trained: bool) -> tuple[Tensor, list[Tensor]]:
    hidden, weight = inputs[0].detach().requires_grad_(), inputs[1].detach().requires_grad_(trained)
    loss = loss_of(hidden, weight, inputs[2], inputs[3])
    loss.backward()
    return loss.detach(), [t.grad for t in (hidden, weight) if t.grad is not None]


def reset_peak(device: str) -> int:
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current memory
    return peak_memory(device)


def peak_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def largest_difference(grads: list[Tensor], others: list[Tensor]) -> float:
    """The largest absolute difference relative to the largest entry."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, others, strict=True))


if __name__ == "__main__":
    main()
