"""What one optimiser step was like, gathered from its micro-batches."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from recovery.batch import Sample
from recovery.telemetry.signal_shape import geometry


@dataclass(frozen=True)
class StepRecord:
    """A field that does not apply is None. Over several ranks, loss and target tokens are the whole step's."""

    step: int
    loss: float
    kl: float | None
    entropy: float | None
    target_tokens: int
    rollout_length: float | None
    truncated: float | None
    ratio_mean: float | None
    ratio_max: float | None
    ratio_clipped: float | None
    reward: float | None
    density: float
    bias: float
    concentration: float
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
        return {k: float(v) for k, v in asdict(self).items() if k != "step" and v is not None and math.isfinite(v)}


class Readings:
    """What the micro-batches of one step said."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._pull_sum: Tensor | None = None

    def add(self, loss: float, seen: dict[str, Tensor], count: int) -> None:
        """`count` undoes the weight that each token's loss was given: a pull is a property of its token."""
        self.loss += loss
        pull_sum = seen.pop("pull_sum") * count
        self._pull_sum = pull_sum if self._pull_sum is None else self._pull_sum + pull_sum
        seen["pull"] = seen["pull"] * count
        for name, values in seen.items():
            self._values[name].append(values)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # what was asked of the GPU is done, not merely queued
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    def of_tokens(self) -> dict[str, Any]:
        shape = geometry(torch.cat(self._values["pull"]), self._pull_sum) if self._pull_sum is not None else geometry()
        return {
            "kl": self._mean("kl"),
            "entropy": self._mean("entropy"),
            "ratio_mean": self._mean("ratio"),
            "ratio_max": float(torch.cat(self._values["ratio"]).max()) if "ratio" in self._values else None,
            "ratio_clipped": self._mean("ratio_clipped"),
            **asdict(shape),
        }

    def _mean(self, name: str) -> float | None:
        return float(torch.cat(self._values[name]).double().mean()) if name in self._values else None


def of_rollouts(sequences: list[Sample]) -> dict[str, Any]:
    own = [s for s in sequences if s.logprobs is not None]
    return {
        "rollout_length": _mean([s.target_count for s in own]),
        "truncated": _mean([s.truncated for s in own]),
        "reward": _mean([s.reward for s in own if s.reward is not None]),
    }


def _mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None
