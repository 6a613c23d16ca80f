"""The loop. Every recipe runs through it; control stays with the caller, who takes one record a step and may stop.

state = TrainState.start(student, plan)
for record in train(student, states, signal, objective, plan, state):
    ...
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recovery.batch import Batch, Sequence, micro_batches
from recovery.errors import RecoverError
from recovery.geometry import geometry
from recovery.measure import flops_of_step, peak_memory_bytes
from recovery.objectives import Objective
from recovery.signals import Said, Signal
from recovery.states import States
from recovery.students import Student
from recovery.vocabulary import Terms, chunked_loss

BAD_STEPS_IN_A_ROW = 3


@dataclass(frozen=True)
class Plan:
    """How long and how boldly. Nothing here depends on the method."""

    steps: int
    learning_rate: float
    warmup: int = 0
    decay: str = "constant"  # or "linear", "cosine": from the end of the warm-up to zero at the last step
    tokens_at_once: int = 8192  # rows × longest row of one micro-batch; the step's result does not depend on it
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    bf16: bool = False
    checkpointing: bool = False

    def rate(self, step: int) -> float:
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = 1 - (step - self.warmup) / max(1, self.steps - self.warmup)
        shape = {"constant": 1.0, "linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left))}[self.decay]
        return self.learning_rate * shape


@dataclass(frozen=True)
class StepRecord:
    """What one optimiser step was like. A field that does not apply is None."""

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


@dataclass
class TrainState:
    """All that a run needs, besides the student's weights and its data, to go on as if it had never stopped."""

    optimizer: torch.optim.Optimizer
    step: int = 0
    bad_in_a_row: int = 0

    @classmethod
    def start(cls, student: Student, plan: Plan) -> "TrainState":
        fused = student.device.type == "cuda"
        return cls(
            torch.optim.AdamW(
                student.trainable(),
                lr=plan.learning_rate,
                betas=plan.betas,
                weight_decay=plan.weight_decay,
                fused=fused,
            )
        )

    def save(self, path: Path) -> None:
        aside = path.with_name(path.name + ".partial")
        saved = {"optimizer": self.optimizer.state_dict(), "step": self.step, "bad_in_a_row": self.bad_in_a_row}
        torch.save(saved, aside)
        aside.rename(path)

    def load(self, path: Path) -> "TrainState":
        saved = torch.load(path, weights_only=True)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.bad_in_a_row = saved["step"], saved["bad_in_a_row"]
        return self


def train(
    student: Student, states: States, signal: Signal, objective: Objective, plan: Plan, state: TrainState | None = None
) -> Iterator[StepRecord]:
    """One record an optimiser step (several, where the objective goes over a draw in several epochs)."""
    state = state or TrainState.start(student, plan)
    while state.step < plan.steps:
        started = time.perf_counter()
        sequences = signal.prepare(states.draw(student, state.step // objective.epochs))
        rollout_seconds = time.perf_counter() - started
        for _ in range(state.step % objective.epochs, objective.epochs):
            record = _update(student, sequences, signal, objective, plan, state, rollout_seconds)
            state.step += 1
            yield record
            rollout_seconds = 0.0
            if state.step >= plan.steps:
                return


def _update(
    student: Student,
    sequences: list[Sequence],
    signal: Signal,
    objective: Objective,
    plan: Plan,
    state: TrainState,
    rollout_seconds: float,
) -> StepRecord:
    started = time.perf_counter()
    count = sum(s.target_count for s in sequences)
    if count == 0:
        raise RecoverError("no token of this draw is a target, so there is nothing to learn from it")
    for group in state.optimizer.param_groups:
        group["lr"] = plan.rate(state.step)
    state.optimizer.zero_grad(set_to_none=True)
    if plan.checkpointing:
        student.causal.gradient_checkpointing_enable()
    student.model.train()
    readings = _Readings()
    for rows in micro_batches(sequences, plan.tokens_at_once):
        batch = Batch.of(rows, student.chat.pad_id, student.device)
        with _autocast(plan, student.device):
            with readings.timed("teacher"):
                said = objective.prepare(signal.at(batch), batch, signal.share)
            # Every target token of the step weighs the same, whatever micro-batch it falls into.
            weights = torch.full(said.tokens.shape, 1.0 / count, device=student.device)
            loss, seen = chunked_loss(
                student.hidden(batch), student.head, partial(_loss_of_chunk, objective, said), weights
            )
        loss.backward()
        readings.add(float(loss.detach()), seen, count)
    student.model.eval()
    norm = float(torch.nn.utils.clip_grad_norm_(student.trainable(), plan.clip_norm))
    skipped = not (math.isfinite(norm) and math.isfinite(readings.loss))
    if skipped:
        _endure(state)
    else:
        state.optimizer.step()
        student.updates += 1
        state.bad_in_a_row = 0
    update_seconds = time.perf_counter() - started - readings.seconds["teacher"]
    shape = geometry(torch.cat(readings.values["pull"]), readings.pull_sum)
    own = [s for s in sequences if s.logprobs is not None]
    rewards = [s.reward for s in own if s.reward is not None]
    seconds = rollout_seconds + readings.seconds["teacher"] + update_seconds
    return StepRecord(
        step=state.step,
        loss=readings.loss,
        kl=readings.mean("kl"),
        entropy=readings.mean("entropy"),
        target_tokens=count,
        rollout_length=_mean([s.target_count for s in own]),
        truncated=_mean([s.truncated for s in own]),
        ratio_mean=readings.mean("ratio"),
        ratio_max=readings.most("ratio"),
        ratio_clipped=readings.mean("ratio_clipped"),
        reward=_mean(rewards),
        density=shape.density,
        bias=shape.bias,
        concentration=shape.concentration,
        grad_norm=norm,
        learning_rate=plan.rate(state.step),
        rollout_seconds=rollout_seconds,
        teacher_seconds=readings.seconds["teacher"],
        update_seconds=update_seconds,
        tokens_per_second=count / seconds,
        flops=flops_of_step(student, signal, sequences, rolled_out=bool(own) and rollout_seconds > 0),
        peak_memory_bytes=peak_memory_bytes(student.device),
        skipped=skipped,
    )


def _loss_of_chunk(objective: Objective, said: Said, logits: Tensor, part: slice) -> Terms:
    return objective(logits, said, part)


def _endure(state: TrainState) -> None:
    """A step whose loss or gradient is not finite changes nothing; several in a row end the run."""
    state.bad_in_a_row += 1
    if state.bad_in_a_row >= BAD_STEPS_IN_A_ROW:
        raise RecoverError(
            f"{state.bad_in_a_row} steps in a row gave a loss or gradient that is not finite; the weights are "
            "those of the last good step: lower the learning rate and resume"
        )


class _Readings:
    """What the micro-batches of one step said, gathered."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.values: dict[str, list[Tensor]] = defaultdict(list)
        self.seconds: dict[str, float] = defaultdict(float)
        self.pull_sum: Tensor = torch.zeros(1)

    def add(self, loss: float, seen: dict[str, Tensor], count: int) -> None:
        self.loss += loss
        pull_sum = seen.pop("pull_sum") * count
        self.pull_sum = pull_sum if not self.values else self.pull_sum + pull_sum
        seen["pull"] = seen["pull"] * count
        for name, values in seen.items():
            self.values[name].append(values)

    def mean(self, name: str) -> float | None:
        return float(torch.cat(self.values[name]).double().mean()) if name in self.values else None

    def most(self, name: str) -> float | None:
        return float(torch.cat(self.values[name]).max()) if name in self.values else None

    def timed(self, name: str) -> "_Timer":
        return _Timer(self.seconds, name)


class _Timer:
    def __init__(self, seconds: dict[str, float], name: str):
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] += time.perf_counter() - self.started


def _autocast(plan: Plan, device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if plan.bf16 else nullcontext()


def _mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None
