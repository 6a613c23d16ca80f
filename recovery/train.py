"""The loop. Every recipe runs through it; control stays with the caller, who takes one record a step and may stop.

state = TrainState.start(student, plan)
for record in train(student, states, signal, objective, plan, state):
    ...
"""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from recovery.batch import Batch, Sample, micro_batches
from recovery.distributed import sum_gradients, total
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import Terms, chunked_loss
from recovery.losses.objectives import Objective
from recovery.models.students import Student
from recovery.signals import Signal, SignalBatch
from recovery.states import States
from recovery.telemetry.step_cost import flops_of_step, peak_memory_bytes
from recovery.telemetry.step_record import Readings, StepRecord, of_rollouts

BAD_STEPS_IN_A_ROW = 3


@dataclass(frozen=True)
class Plan:
    """How long and how boldly. Nothing here depends on the method."""

    steps: int
    learning_rate: float
    warmup: int = 0
    decay: str = "constant"  # or "linear", "cosine": from the end of the warm-up to zero after the last step
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


@dataclass
class TrainState:
    """All that a run needs, besides the student's weights and its data, to go on as if it had never stopped."""

    optimizer: torch.optim.Optimizer
    step: int = 0
    bad_in_a_row: int = 0
    between_draws: bool = True  # a run can only go on from here: in between, its rollouts came from earlier weights

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
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.bad_in_a_row = saved["step"], saved["bad_in_a_row"]
        return self


def train(
    student: Student, states: States, signal: Signal, objective: Objective, plan: Plan, state: TrainState | None = None
) -> Iterator[StepRecord]:
    """One record an optimiser step (several, where the objective goes over a draw in several epochs)."""
    state = state or TrainState.start(student, plan)
    if plan.checkpointing:
        student.causal.gradient_checkpointing_enable()
    while state.step < plan.steps:
        started = time.perf_counter()
        sequences = signal.prepare(states.draw(student, state.step // objective.epochs))
        rollout_seconds = time.perf_counter() - started
        epochs = min(objective.epochs, plan.steps - state.step)
        for epoch in range(epochs):
            started = time.perf_counter()
            readings = Readings()
            count = _gradient(student, sequences, signal, objective, plan, readings)
            norm, skipped = _move(student, plan, state, readings)
            seconds = time.perf_counter() - started
            record = StepRecord(
                step=state.step,
                loss=readings.loss,
                target_tokens=count,
                grad_norm=norm,
                learning_rate=plan.rate(state.step),
                rollout_seconds=rollout_seconds,
                teacher_seconds=readings.seconds["teacher"],
                update_seconds=seconds - readings.seconds["teacher"],
                tokens_per_second=count / (rollout_seconds + seconds),
                flops=flops_of_step(student, signal, sequences, rolled_out=rollout_seconds > 0),
                peak_memory_bytes=peak_memory_bytes(student.device),
                skipped=skipped,
                **readings.of_tokens(),
                **of_rollouts(sequences),
            )
            state.step += 1
            state.between_draws = epoch + 1 == epochs
            rollout_seconds = 0.0
            yield record


def _gradient(
    student: Student, sequences: list[Sample], signal: Signal, objective: Objective, plan: Plan, readings: Readings
) -> int:
    """The gradient of the mean loss over every target token of the step, however it is cut; returns their number."""
    count = int(total(sum(s.target_count for s in sequences), student.device))
    if count == 0:
        raise RecoverError("no token of this draw is a target, so there is nothing to learn from it")
    student.model.zero_grad(set_to_none=True)
    student.model.train()
    for rows in micro_batches([s for s in sequences if s.target_count], plan.tokens_at_once):
        batch = Batch.of(rows, student.chat.pad_id, student.device)
        with torch.autocast(student.device.type, torch.bfloat16) if plan.bf16 else nullcontext():
            with readings.timed("teacher"):
                said = objective.prepare(signal.at(batch), batch, signal.share)
            weights = torch.full(said.tokens.shape, 1.0 / count, device=student.device)
            loss_of_chunk = partial(_loss_of_chunk, objective, said)
            loss, seen = chunked_loss(student.hidden(batch), student.head, loss_of_chunk, weights)
        loss.backward()
        readings.add(float(loss.detach()), seen, count)
    student.model.eval()
    sum_gradients(student.trainable())
    readings.loss = total(readings.loss, student.device)
    return count


def _loss_of_chunk(objective: Objective, said: SignalBatch, logits: Tensor, part: slice) -> Terms:
    return objective(logits, said, part)


def _move(student: Student, plan: Plan, state: TrainState, readings: Readings) -> tuple[float, bool]:
    """One step of the optimiser, unless the loss or the gradient is not finite; several such in a row end the run."""
    norm = float(torch.nn.utils.clip_grad_norm_(student.trainable(), plan.clip_norm))
    if math.isfinite(norm) and math.isfinite(readings.loss):
        for group in state.optimizer.param_groups:
            group["lr"] = plan.rate(state.step)
        state.optimizer.step()
        student.updates += 1
        state.bad_in_a_row = 0
        return norm, False
    state.bad_in_a_row += 1
    if state.bad_in_a_row >= BAD_STEPS_IN_A_ROW:
        raise RecoverError(
            f"{state.bad_in_a_row} steps in a row gave a loss or gradient that is not finite, and changed nothing; "
            "lower the learning rate and run it again"
        )
    return norm, True
