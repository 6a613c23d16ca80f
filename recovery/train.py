"""The training loop of every recipe: a generator that yields one record per step, so the caller can stop any time.

state = TrainState.start(student, plan)
for record in train(student, states, signal, objective, plan, state):
    ...
"""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from recovery.chunked_loss import chunked_loss
from recovery.distributed import all_reduce_sum, load_optimizer, own_rows, processes, whole
from recovery.errors import RecoverError
from recovery.hardware import MemoryReturn, give_back_freed_memory
from recovery.models.families import set_training
from recovery.models.students import Student
from recovery.objectives import Objective, loss_of_chunk
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Signal
from recovery.states import States
from recovery.teachers import frozen_teachers
from recovery.telemetry import (
    StepMetrics,
    StepRecord,
    TokenReport,
    flops_of_step,
    peak_memory_bytes,
    report_tokens,
    rollout_metrics,
)

MAX_BAD_STEPS_IN_A_ROW = 3  # steps whose loss or gradient is not finite

Decay = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Plan:
    """The optimisation settings: length, learning rate, batch cutting. None of them depends on the method."""

    steps: int
    learning_rate: float
    warmup: int = 0
    decay: Decay = "constant"  # the others reach zero after the last step
    tokens_at_once: int = 8192  # rows × longest row of a micro-batch; does not change the step's result
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    bf16: bool = False
    checkpointing: bool = False
    measure_every: int = 1  # steps between measurements of entropy and signal shape, which the loss does not need

    def learning_rate_at(self, step: int) -> float:
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = 1 - (step - self.warmup) / max(1, self.steps - self.warmup)
        shape = {"constant": 1.0, "linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left))}[self.decay]
        return self.learning_rate * shape


@dataclass
class Learning:
    """What every step of a training has in common."""

    student: Student
    signal: Signal
    objective: Objective
    plan: Plan


@dataclass
class TrainState:
    """What a run needs to resume exactly, besides the student's weights and its data."""

    optimizer: torch.optim.Optimizer
    step: int = 0
    bad_in_a_row: int = 0
    between_draws: bool = True  # a run can resume only then: within a draw, its rollouts came from older weights

    @classmethod
    def start(cls, student: Student, plan: Plan) -> "TrainState":
        fused = student.device.type in ("cpu", "cuda")
        trained, rate = student.trainable(), plan.learning_rate
        return cls(torch.optim.AdamW(trained, rate, plan.betas, weight_decay=plan.weight_decay, fused=fused))

    def take_step(self, learning: Learning, samples: list[Sample], metrics: StepMetrics) -> tuple[int, float, bool]:
        """Return the number of target tokens, the gradient norm, and whether the step was skipped.

        The gradient is freed at once: rollouts and probes follow, which need the memory."""
        count = _compute_gradient(learning, samples, metrics, self.step % learning.plan.measure_every == 0)
        norm, skipped = _optimizer_step(learning.student, learning.plan, self, metrics)
        learning.student.model.zero_grad(set_to_none=True)
        return count, norm, skipped

    def report(self, student: Student, signal: Signal, samples: list[Sample]) -> list[list[TokenReport]] | None:
        """Compare student and teacher on each token of some samples; None without a teacher."""
        return report_tokens(student, signal.teacher, samples) if signal.teacher else None

    def save(self, path: Path) -> None:
        saved = {"optimizer": self.optimizer_state(), "step": self.step, "bad_in_a_row": self.bad_in_a_row}
        torch.save(saved, path)

    def optimizer_state(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load(self, path: Path) -> None:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=processes() > 1)
        load_optimizer(self.optimizer, saved["optimizer"])
        self.step, self.bad_in_a_row, self.between_draws = saved["step"], saved["bad_in_a_row"], True


def train(
    student: Student, states: States, signal: Signal, objective: Objective, plan: Plan, state: TrainState | None = None
) -> Iterator[StepRecord]:
    """Yield one record per optimiser step; an objective with several epochs takes several steps per draw."""
    for teacher in frozen_teachers(signal.teacher):
        teacher.bind_student(student)
    learning, state = Learning(student, signal, objective, plan), state or TrainState.start(student, plan)
    if plan.checkpointing:
        student.causal.gradient_checkpointing_enable()
    memory = MemoryReturn(student.device)
    give_back_freed_memory(student.device)  # what a measurement before has left
    while state.step < plan.steps:
        start_time = time.perf_counter()
        samples = signal.prepare(states.draw(student, state.step // objective.epochs))
        rollout_seconds = time.perf_counter() - start_time
        epochs = min(objective.epochs, plan.steps - state.step)
        for epoch in range(epochs):
            start_time = time.perf_counter()
            metrics = StepMetrics()
            count, norm, skipped = state.take_step(learning, samples, metrics)
            seconds = time.perf_counter() - start_time
            record = StepRecord(
                step=state.step,
                loss=metrics.loss,
                target_tokens=count,
                grad_norm=norm,
                learning_rate=plan.learning_rate_at(state.step),
                rollout_seconds=rollout_seconds,
                teacher_seconds=metrics.seconds["teacher"],
                update_seconds=seconds - metrics.seconds["teacher"],
                tokens_per_second=count / (rollout_seconds + seconds),
                flops=flops_of_step(student, signal, samples, rolled_out=rollout_seconds > 0),
                peak_memory_bytes=peak_memory_bytes(student.device),
                skipped=skipped,
                **metrics.token_metrics(),
                **rollout_metrics(samples),
            )
            state.step += 1
            state.between_draws = epoch + 1 == epochs
            rollout_seconds = 0.0
            memory.after_step()
            yield record


def _compute_gradient(learning: Learning, samples: list[Sample], metrics: StepMetrics, is_measured: bool) -> int:
    """Accumulate the gradient of the mean loss over all target tokens of the step, and return their number."""
    count = sum(s.target_count for s in samples)
    if count == 0:
        if learning.student.vocabulary is not None and any(s.logprobs is not None for s in samples):
            raise RecoverError(
                "All rollouts of this step begin with a token that the teacher lacks, so nothing can be learned from "
                "it. Choose a recipe that trains on the teacher's own answers, such as offpolicy-kl."
            )
        raise RecoverError("No token of this step is a target, so there is nothing to train on. Add data with targets.")
    student, signal, plan, stops = learning.student, learning.signal, learning.plan, learning.student.stops
    student.model.zero_grad(set_to_none=True)  # of a step that was broken off
    set_training(student.model)
    trained = [s for s in samples if s.target_count]
    for rows in micro_batches(trained, plan.tokens_at_once, signal.domains):
        ours = own_rows(rows)
        # A process without a row computes another's and counts it with 0: all must run the same passes.
        batch = Batch.collate(ours or rows[:1], student.chat.pad_id, student.device)
        with torch.autocast(student.device.type, torch.bfloat16) if plan.bf16 else nullcontext():
            with metrics.timed("teacher"):
                computed = replace(signal.compute(batch), stops=stops, is_measured=is_measured)
                loss_of = loss_of_chunk(learning.objective, computed, batch, signal.teacher_weight)
            weights = torch.full(batch.target_rows.shape, 1.0 / count if ours else 0.0, device=student.device)
            hidden = student.hidden(batch)
            loss, batch_metrics = chunked_loss(hidden, student.head, loss_of, weights, with_shape=is_measured)
        loss.backward()
        if ours:
            metrics.add(float(loss.detach()), batch_metrics, count, batch)
    student.model.eval()
    metrics.loss = all_reduce_sum(metrics.loss, student.device)
    return count


def _optimizer_step(student: Student, plan: Plan, state: TrainState, metrics: StepMetrics) -> tuple[float, bool]:
    """Step the optimiser if loss and gradient are finite; return the gradient norm and whether it was skipped."""
    norm = float(whole(torch.nn.utils.clip_grad_norm_(student.trainable(), plan.clip_norm)))
    if math.isfinite(norm) and math.isfinite(metrics.loss):
        for group in state.optimizer.param_groups:
            group["lr"] = plan.learning_rate_at(state.step)
        state.optimizer.step()
        student.updates += 1
        state.bad_in_a_row = 0
        return norm, False
    state.bad_in_a_row += 1
    if state.bad_in_a_row >= MAX_BAD_STEPS_IN_A_ROW:
        raise RecoverError(
            f"Loss or gradient was not finite in {state.bad_in_a_row} steps in a row, which were skipped. "
            "Lower the learning rate and run again."
        )
    return norm, True
