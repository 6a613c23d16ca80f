"""Reverse KL between two models' next-token distributions, with gradients: memory and time of three implementations.

    python -m benchmarks.divergence [--positions 1024] [--head frozen] [--bf16]

`plain` holds both models' logits and uses autograd; `TRL` is TRL's chunked loss; `recover` is ours. They run one after
the other, round after round; peak memory is counted above the inputs. On a CPU each runs in its own process, as freed
memory is seldom returned to the system; a GPU's allocator counts each separately.
"""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import Clock
from benchmarks.scripts import in_new_process, script_parser, table
from recovery.chunked_loss import Head, chunked_loss
from recovery.objectives import Divergence
from recovery.signals import SignalBatch
from recovery.teachers import Distribution

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


class Run(NamedTuple):
    loss: float
    time: Clock
    bytes: int  # at the peak
    grads: list[np.ndarray]


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = script_parser(__doc__)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--bf16", action="store_true", help="hidden states and heads in bfloat16")
    parser.add_argument("--head", choices=["frozen", "trained", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(arguments)
    return {head: compare(args, head) for head in (("frozen", "trained") if args.head == "both" else (args.head,))}


def compare(args: Any, head: str) -> dict[str, float]:
    runs: dict[str, list[Run]] = {name: [] for name in LOSSES}
    for _ in range(args.rounds):
        for name in LOSSES:
            # A GPU's allocator counts each by itself.
            measured = measure(args, head, name) if args.device == "cuda" else in_new_process(measure, args, head, name)
            runs[name].append(measured)
    memory = {name: median([run.bytes for run in runs[name]]) for name in LOSSES}
    seconds = {name: median([run.time.wall for run in runs[name]]) for name in LOSSES}
    cpu = {name: median([run.time.cpu for run in runs[name]]) for name in LOSSES}
    loss = {name: runs[name][0].loss for name in LOSSES}
    gradient_error = {name: largest_difference(runs[name][-1].grads, runs["plain"][-1].grads) for name in LOSSES}
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
                f"{loss[name]:.6f}",
                f"{gradient_error[name]:.1e}",
            ]
            for name in LOSSES
        ],
    )
    return {
        "memory of plain": memory["recover"] / memory["plain"],
        "memory of TRL": memory["recover"] / memory["TRL"],
        "time of faster": seconds["recover"] / faster,
        "loss difference": abs(loss["recover"] - loss["plain"]),
        "gradient difference": gradient_error["recover"],
    }


def measure(args: Any, head: str, name: str) -> Run:
    torch.set_num_threads(args.threads)
    loss_of, dtype = LOSSES[name], torch.bfloat16 if args.bf16 else torch.float32
    # A small problem first loads modules and kernels, before timing starts.
    loss_and_gradients(loss_of, problem(8, 16, 32, dtype, args.device), trained=True)
    inputs = problem(args.positions, args.hidden, args.vocabulary, dtype, args.device)
    if args.device == "cuda":
        loss_and_gradients(loss_of, inputs, head == "trained")
    before = reset_peak(args.device)
    start = Clock.now()
    loss, grads = loss_and_gradients(loss_of, inputs, head == "trained")
    time = Clock.now().since(start)
    peak = peak_memory(args.device) - before
    # The first rows of the head's gradient are enough to compare.
    return Run(float(loss), time, peak, [grad[:2048].float().cpu().numpy() for grad in grads])


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


def largest_difference(grads: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The largest absolute difference relative to the largest entry."""
    return max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(grads, others, strict=True))


if __name__ == "__main__":
    main()
