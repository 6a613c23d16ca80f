"""The record of one optimiser step, collected from its micro-batches."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from recovery.samples import Sample
from recovery.telemetry.repetition import repetition

MIN_ACTIVE_NORM = 0.01  # of a loss gradient on a token's logits: a probability moved by a percent


@dataclass(frozen=True)
class StepRecord:
    """Metrics of one step; None where not applicable. Of several processes, times and memory are the leader's."""

    step: int
    loss: float
    kl: float | None
    entropy: float | None
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
    waiting: float | None = None  # share of the step's time spent waiting for servers
    servers: dict[str, float] = field(default_factory=dict)  # bytes, by "HOST:PORT/sent_bytes" and /received_bytes

    def metrics(self) -> dict[str, float]:
        values = asdict(self)
        values |= {f"server/{name}": count for name, count in values.pop("servers").items()}
        return {k: float(v) for k, v in values.items() if k != "step" and v is not None and math.isfinite(v)}


class StepMetrics:
    """Collects the metrics of a step's micro-batches."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._grad_sum: Tensor | None = None

    def add(self, loss: float, metrics: dict[str, Tensor], count: int) -> None:
        """Add a micro-batch. `count` undoes the 1 / count weight of each token's loss in the logit gradients."""
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
            own = self._values[name]
            own.append(tensor.to(own[0].device) if own else tensor)

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
            "kl": self._mean("kl"),
            "entropy": self._mean("entropy"),
            "ratio_mean": self._mean("ratio"),
            "ratio_max": float(torch.cat(self._values["ratio"]).max()) if "ratio" in self._values else None,
            "ratio_clipped": self._mean("ratio_clipped"),
            "clipped": self._mean("clipped"),
            "stop_student": self._mean("stop_student"),
            "stop_teacher": self._mean("stop_teacher"),
            **shape,
        }

    def _mean(self, name: str) -> float | None:
        return float(torch.cat(self._values[name]).double().mean()) if name in self._values else None


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
