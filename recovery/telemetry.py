"""What a training shows of itself: the record of each step with its cost, and reports on single tokens."""

import math
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from recovery.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.divergences import reverse_kl
from recovery.models.students import Student
from recovery.samples import Batch, Sample
from recovery.signals import Signal
from recovery.teachers import Teacher, likeliest

MIN_ACTIVE_NORM = 0.01  # of a loss gradient on a token's logits: a probability moved by a percent
PIECE = 8  # tokens: ordinary text repeats shorter pieces, such as a name or the start of a list's items
CHOICES = 3  # of each model that are reported at a token
TOKEN_MEANS = ("ratio_clipped", "clipped", "stop_student", "stop_teacher")
ROLLOUT_MEANS = ("kl", "entropy")  # of the rollouts alone where there are some: what a collapse is told from


@dataclass(frozen=True)
class StepRecord:
    """Metrics of one step; None where not applicable. Of several processes, times and memory are the leader's."""

    step: int
    loss: float
    kl: float | None  # of the rollouts' tokens; of all target tokens where a step has no rollouts
    entropy: float | None  # likewise
    target_tokens: int
    rollouts: int | None
    rollout_length: float | None
    truncated: float | None  # share of the rollouts that were cut, having not ended
    repetition: float | None
    ratio_mean: float | None
    ratio_max: float | None
    ratio_clipped: float | None
    clipped: float | None
    stop_student: float | None
    stop_teacher: float | None
    reward: float | None
    density: float | None  # share of the target tokens with a gradient g on their own logits: ‖g‖ > MIN_ACTIVE_NORM
    bias: float | None  # ‖Σ g‖ / Σ ‖g‖: 0 when the gradients cancel, 1 when all have one direction
    concentration: float | None  # share of Σ ‖g‖² that the strongest 1 % of the tokens carry
    grad_norm: float
    learning_rate: float
    rollout_seconds: float
    teacher_seconds: float
    update_seconds: float
    tokens_per_second: float
    flops: float
    peak_memory_bytes: int
    skipped: bool = False

    def metrics(self) -> dict[str, float]:
        values = asdict(self)
        return {k: float(v) for k, v in values.items() if k != "step" and v is not None and math.isfinite(v)}


class StepMetrics:
    def __init__(self) -> None:
        self.loss = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._grad_sum: Tensor | None = None

    def add(self, loss: float, metrics: dict[str, Tensor], count: int, batch: Batch) -> None:
        """Add a micro-batch. `count` undoes the 1 / count weight of each token's loss in the logit gradients."""
        of_rollouts = batch.per_target([sample.logprobs is not None for sample in batch.samples]).bool()
        for name in ROLLOUT_MEANS:
            if name in metrics:
                self._values[f"rollouts/{name}"].append(metrics[name][of_rollouts])
        self.loss += loss
        if "logit_grad_sum" in metrics:
            grad_sum = metrics.pop("logit_grad_sum") * count
            self._grad_sum = grad_sum if self._grad_sum is None else self._grad_sum + grad_sum
            metrics["logit_grad_norm"] = metrics["logit_grad_norm"] * count
        for name, values in metrics.items():
            self._values[name].append(values)

    @property
    def of_tokens(self) -> dict[str, Tensor]:
        """What the metrics of tokens are computed from, to be added in another process."""
        values = {name: torch.cat(parts).cpu() for name, parts in self._values.items()}
        return values if self._grad_sum is None else values | {"logit_grad_sum": self._grad_sum.cpu()}

    def add_of_tokens(self, values: dict[str, Tensor]) -> None:
        if "logit_grad_sum" in values and self._grad_sum is not None:
            self._grad_sum = self._grad_sum + values.pop("logit_grad_sum").to(self._grad_sum.device)
        for name, tensor in values.items():
            parts = self._values[name]
            parts.append(tensor.to(parts[0].device) if parts else tensor)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start_time = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # wait for queued GPU work
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - start_time

    def token_metrics(self) -> dict[str, Any]:
        shape: dict[str, float | None] = dict.fromkeys(("density", "bias", "concentration"))
        if self._grad_sum is not None:
            shape |= _signal_shape(torch.cat(self._values["logit_grad_norm"]), self._grad_sum)
        return {
            **{name: self._mean_of_rollouts(name) for name in ROLLOUT_MEANS},
            **{name: self._mean(name) for name in TOKEN_MEANS},
            "ratio_mean": self._mean("ratio"),
            "ratio_max": float(torch.cat(self._values["ratio"]).max()) if "ratio" in self._values else None,
            **shape,
        }

    def _mean_of_rollouts(self, name: str) -> float | None:
        of_rollouts = self._mean(f"rollouts/{name}")
        return self._mean(name) if of_rollouts is None else of_rollouts

    def _mean(self, name: str) -> float | None:
        parts = self._values.get(name)
        return float(torch.cat(parts).double().mean()) if parts and any(map(len, parts)) else None


def _signal_shape(grad_norms: Tensor, grad_sum: Tensor) -> dict[str, float]:
    """From each token's gradient norm [tokens] and the gradients' vector sum [vocabulary]; zeros without a gradient."""
    norms = grad_norms.double()
    squared = norms**2
    total = float(squared.sum())
    if total == 0 or not math.isfinite(total):
        return dict.fromkeys(("density", "bias", "concentration"), 0.0)
    return {
        "density": float((norms > MIN_ACTIVE_NORM).double().mean()),
        "bias": float(grad_sum.double().norm() / norms.sum()),
        "concentration": float(squared.topk(max(1, grad_norms.numel() // 100)).values.sum()) / total,
    }


def rollout_metrics(samples: list[Sample]) -> dict[str, Any]:
    """Of all rollouts, also of those that are not learned."""
    rollouts = [s for s in samples if s.logprobs is not None]
    replies = [s.tokens[len(s.tokens) - len(s.logprobs or []) :] for s in rollouts]
    return {
        "rollouts": len(rollouts) or None,
        "rollout_length": _mean([len(reply) for reply in replies]),
        "truncated": _mean([s.truncated for s in rollouts]),
        "repetition": _mean([repetition(reply) for reply in replies if reply]),
        "reward": _mean([s.reward for s in rollouts if s.reward is not None]),
    }


def _mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None


def repetition(tokens: Sequence[object]) -> float:
    """Return the share of a text's pieces of `PIECE` tokens or words that occurred in it before: 0 for a short text."""
    pieces = [tuple(tokens[i : i + PIECE]) for i in range(len(tokens) - PIECE + 1)]
    return 1 - len(set(pieces)) / len(pieces) if pieces else 0.0


def flops_of_step(student: Student, signal: Signal, samples: list[Sample], *, rolled_out: bool) -> float:
    """Count forward and backward of the student (3 passes), the teacher's forward, and the rollouts' forward.

    Rollouts that are not learned cost their forward pass alone."""
    trained = [sample for sample in samples if sample.target_count]
    tokens = 3 * sum(len(sample.tokens) for sample in trained)
    if rolled_out:
        tokens += sum(len(sample.tokens) for sample in samples if sample.logprobs is not None)
    written = sum(sample.writing_flops for sample in samples) if rolled_out else 0.0
    return 2.0 * tokens * student.parameters + signal.flops(trained) + written


def peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


Choices = list[tuple[str, float]]  # likeliest first: a token's text and its probability


@dataclass(frozen=True)
class TokenReport:
    """The KL to the teacher at a token, and what both models find likeliest there."""

    text: str
    kl: float
    student: Choices
    teacher: Choices


@torch.no_grad()
def report_tokens(student: Student, teacher: Teacher, samples: Sequence[Sample]) -> list[list[TokenReport]]:
    return [_report_sample(student, teacher, sample) for sample in samples]


def _report_sample(student: Student, teacher: Teacher, sample: Sample) -> list[TokenReport]:
    batch = Batch.collate([sample], student.chat.pad_id, student.device)
    hidden, head, distribution = student.hidden(batch), student.head, teacher.distribution(batch)
    decode = student.chat.tokenizer.decode

    def as_text(tokens: Tensor, logprobs: Tensor) -> list[Choices]:
        rows = zip(tokens.tolist(), logprobs.exp().tolist(), strict=True)
        return [[(decode([token]), p) for token, p in zip(*row, strict=True)] for row in rows]

    reports: list[TokenReport] = []
    for part in chunks(len(hidden), len(head.weight), CHUNK_ELEMENTS):  # keeps [positions × vocabulary] small
        ours = torch.log_softmax(head.logits(hidden[part]), dim=-1)
        kls = reverse_kl(*distribution.compare(ours, part, student.stops)[:2]).tolist()
        texts = [decode([token]) for token in batch.target_tokens[part].tolist()]
        choices_of = (as_text(*likeliest(ours, CHOICES)), as_text(*distribution.likeliest(part, CHOICES)))
        reports += map(TokenReport, texts, kls, *choices_of)
    return reports
