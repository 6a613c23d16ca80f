"""One step of on-policy distillation, end to end: ours against TRL's `DistillationTrainer`.

The student is the teacher with its weights shaken. Both sides see the same prompts in the same order, write at most so
many tokens to each, and take the exact reverse KL. TRL runs with gradient checkpointing off, which
spares it a forward pass that its default would add.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.common import Clock, in_turns, median, model_folder, parser, perturbed, profiled, table, twin
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks
from recovery.losses.objectives import Divergence
from recovery.models.students import Student, load_student
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts, ShuffledOrder
from recovery.teachers import FrozenTeacher
from recovery.telemetry.step_record import StepRecord
from recovery.train import Plan, train

RATE = 1e-4


def main(arguments: list[str] | None = None) -> dict[str, float]:
    options = parser(__doc__, steps=8)
    options.add_argument("--rows", type=int, default=64, help="prompts a step (default 64)")
    options.add_argument("--max-new-tokens", type=int, default=100)
    options.add_argument("--only", choices=["ours"], help="ours alone, for tuning")
    asked = options.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    folder = model_folder(asked.model, asked.shape)
    student = perturbed(folder, asked.device)
    other = twin(student)
    steps = asked.steps + asked.warmup
    texts = [task.prompt for task in instruction_tasks(0, asked.rows * (steps + 1), "train")]
    ours = _ours(student, folder, texts, asked)
    if asked.only:
        return _alone(ours, asked)
    # Our loop walks the prompts in an order of its own, which the other side is given as it is.
    in_order = [texts[i] for _, i in ShuffledOrder(len(texts), 0).take(0, asked.rows * steps)]
    theirs = _trl(other, folder, in_order, asked, steps)
    lengths: list[float] = theirs._metrics["train"]["completions/mean_length"]
    seconds, own_seconds, records = in_turns(theirs, ours, asked.steps, asked.warmup)
    lengths = [length * asked.rows for length in lengths[asked.warmup :]]
    written = [r.target_tokens for r in records]
    speed, cpu_speed = _speeds(lengths, seconds)
    own_speed, own_cpu_speed = _speeds(written, own_seconds)
    parts = [f"{median([getattr(r, f'{part}_seconds') for r in records]):.2f}" for part in PARTS]
    print(
        f"{asked.rows} prompts, at most {asked.max_new_tokens} new tokens, {'bf16' if asked.bf16 else 'float32'}, "
        f"{asked.threads} threads, {asked.steps} steps of each in turn"
    )
    table(
        ["", "s/step", *PARTS, "tokens/step", "tokens/s", "ratio", "tokens/CPU s", "ratio"],
        [
            ["TRL", _seconds(seconds), "", "", "", *_row(lengths, speed, 1.0, cpu_speed, 1.0)],
            [
                "recover",
                _seconds(own_seconds),
                *parts,
                *_row(written, own_speed, own_speed / speed, own_cpu_speed, own_cpu_speed / cpu_speed),
            ],
        ],
    )
    if asked.profile:
        profiled("recover", lambda: next(ours))
    return {"ratio": own_speed / speed, "tokens": median(written), "their tokens": median(lengths)}


PARTS = ("rollout", "teacher", "update")


def _speeds(tokens: Sequence[float], took: Sequence[Clock]) -> tuple[float, float]:
    """Tokens a second of all steps together, by the wall and of processor time: replies differ in length."""
    return sum(tokens) / sum(t.wall for t in took), sum(tokens) / sum(t.cpu for t in took)


def _seconds(took: Sequence[Clock]) -> str:
    return f"{median([t.wall for t in took]):.2f}"


def _row(tokens: Sequence[float], *speeds: float) -> list[str]:
    speed, ratio, cpu_speed, cpu_ratio = speeds
    return [f"{median(tokens):.0f}", f"{speed:.0f}", f"{ratio:.2f}", f"{cpu_speed:.0f}", f"{cpu_ratio:.2f}"]


def _ours(student: Student, folder: str, texts: list[str], asked: Any) -> Iterator[StepRecord]:
    prompts = [Prompt(text, student.chat.prompt(text)) for text in texts]
    engine = TransformersEngine(student)
    states = Rollouts(prompts, engine, rows=asked.rows, max_new_tokens=asked.max_new_tokens)
    plan = Plan(steps=10**6, learning_rate=RATE, bf16=asked.bf16)
    teacher = FrozenTeacher(folder, device=asked.device)
    return train(student, states, TeacherSignal(teacher), Divergence(1.0), plan)


def _trl(student: Student, folder: str, texts: list[str], asked: Any, steps: int) -> Any:
    from datasets import Dataset
    from trl import DistillationConfig, DistillationTrainer

    config = DistillationConfig(
        output_dir="unused",
        per_device_train_batch_size=asked.rows,
        max_steps=steps,
        max_completion_length=asked.max_new_tokens,
        beta=1.0,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        bf16=asked.bf16,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        use_cpu=asked.device == "cpu",
        save_strategy="no",
        report_to=[],
        logging_steps=10**6,
        disable_tqdm=True,
    )
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])
    teacher = load_student(folder, frozen=True, device=asked.device).model
    return DistillationTrainer(
        student.model, teacher, args=config, train_dataset=rows, processing_class=student.chat.tokenizer
    )


def _alone(ours: Iterator[StepRecord], asked: Any) -> dict[str, float]:
    records = [next(ours) for _ in range(asked.warmup + asked.steps)][asked.warmup :]
    for r in records:
        parts = "  ".join(f"{part} {getattr(r, f'{part}_seconds'):.2f}" for part in PARTS)
        print(f"{parts}  tokens {r.target_tokens}  kl {r.kl:.4f}", flush=True)
    if asked.profile:
        profiled("recover", lambda: next(ours))
    return {}


if __name__ == "__main__":
    main()
