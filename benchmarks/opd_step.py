"""One step of on-policy distillation, end to end: our loop against TRL's `DistillationTrainer`.

    python -m benchmarks.opd_step [--steps 8] [--bf16] [--shape qwen3-0.6b] [--engine vllm]

The student is the teacher with noise added to its weights. Both sides use the same prompts in the same order, the same
limit of new tokens, and the exact reverse KL. TRL runs without gradient checkpointing, which saves it a forward pass.
"""

from collections.abc import Iterator, Sequence
from tempfile import gettempdir
from typing import Any

import torch

from benchmarks.common import (
    Clock,
    clone,
    median,
    model_folder,
    perturbed,
    print_profile,
    speed_parser,
    time_alternating,
)
from benchmarks.scripts import table
from pipelines.model_loading import open_engine
from recovery.engines import Engine
from recovery.lab import instruction_tasks
from recovery.models.students import Student, load_student
from recovery.objectives import Divergence
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts, ShuffledOrder
from recovery.teachers import FrozenTeacher
from recovery.telemetry import StepRecord
from recovery.train import Plan, train

RATE = 1e-4


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = speed_parser(__doc__, steps=8)
    parser.add_argument("--rows", type=int, default=64, help="prompts per step (default 64)")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument(
        "--engine", default="transformers", choices=["auto", "transformers", "vllm"], help="of our side"
    )
    parser.add_argument("--only", choices=["ours"], help="measure our side alone, for tuning")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    folder = model_folder(args.model, args.shape)
    student = perturbed(folder, args.device)
    other = clone(student)
    count = args.rows * (args.steps + args.warmup + 1)
    texts = [task.prompt for task in instruction_tasks(0, count, "train")]
    with open_engine(student, args.engine) as engine:
        ours = _recover(student, folder, texts, engine, args)
        return _own_side_only(ours, args) if args.only else _compare(ours, other, folder, texts, args)


def _compare(ours: Iterator[StepRecord], other: Student, folder: str, texts: list[str], args: Any) -> dict[str, float]:
    steps = args.steps + args.warmup
    # The other side gets the prompts in the order of our loop.
    in_order = [texts[i] for _, i in ShuffledOrder(len(texts), 0).take(0, args.rows * steps)]
    trainer = _trl(other, folder, in_order, args, steps)
    lengths: list[float] = trainer._metrics["train"]["completions/mean_length"]
    seconds, own_seconds, records = time_alternating(trainer, ours, args.steps, args.warmup)
    lengths = [length * args.rows for length in lengths[args.warmup :]]
    own_lengths = [r.target_tokens for r in records]
    speed, cpu_speed = _speeds(lengths, seconds)
    own_speed, own_cpu_speed = _speeds(own_lengths, own_seconds)
    parts = [f"{median([getattr(r, f'{part}_seconds') for r in records]):.2f}" for part in PARTS]
    print(
        f"{args.rows} prompts, at most {args.max_new_tokens} new tokens, {'bf16' if args.bf16 else 'float32'}, "
        f"{args.threads} threads, {args.steps} alternating steps per side"
    )
    table(
        ["", "s/step", *PARTS, "tokens/step", "tokens/s", "ratio", "tokens/CPU s", "ratio"],
        [
            ["TRL", _seconds(seconds), "", "", "", *_row(lengths, speed, 1.0, cpu_speed, 1.0)],
            [
                "recover",
                _seconds(own_seconds),
                *parts,
                *_row(own_lengths, own_speed, own_speed / speed, own_cpu_speed, own_cpu_speed / cpu_speed),
            ],
        ],
    )
    if args.profile:
        print_profile("recover", lambda: next(ours))
    return {"ratio": own_speed / speed, "tokens": median(own_lengths), "trl tokens": median(lengths)}


PARTS = ("rollout", "teacher", "update")


def _speeds(tokens: Sequence[float], times: Sequence[Clock]) -> tuple[float, float]:
    """Tokens per second of wall and of processor time, over all steps together as replies differ in length."""
    return sum(tokens) / sum(t.wall for t in times), sum(tokens) / sum(t.cpu for t in times)


def _seconds(times: Sequence[Clock]) -> str:
    return f"{median([t.wall for t in times]):.2f}"


def _row(tokens: Sequence[float], *speeds: float) -> list[str]:
    speed, ratio, cpu_speed, cpu_ratio = speeds
    return [f"{median(tokens):.0f}", f"{speed:.0f}", f"{ratio:.2f}", f"{cpu_speed:.0f}", f"{cpu_ratio:.2f}"]


def _recover(student: Student, folder: str, texts: list[str], engine: Engine, args: Any) -> Iterator[StepRecord]:
    prompts = [Prompt(text, student.chat.prompt(text)) for text in texts]
    states = Rollouts(prompts, engine, rows=args.rows, max_new_tokens=args.max_new_tokens)
    plan = Plan(steps=10**6, learning_rate=RATE, bf16=args.bf16)
    teacher = FrozenTeacher(folder, device=args.device)
    return train(student, states, TeacherSignal(teacher), Divergence(1.0), plan)


def _trl(student: Student, folder: str, texts: list[str], args: Any, steps: int) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from trl import DistillationConfig, DistillationTrainer

    config = DistillationConfig(
        output_dir=gettempdir(),  # nothing is saved
        per_device_train_batch_size=args.rows,
        max_steps=steps,
        max_completion_length=args.max_new_tokens,
        beta=1.0,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        bf16=args.bf16,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        use_cpu=args.device == "cpu",
        save_strategy="no",
        report_to=[],
        logging_steps=10**6,
        disable_tqdm=True,
    )
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])
    teacher = load_student(folder, frozen=True, device=args.device).model
    return DistillationTrainer(
        student.model, teacher, args=config, train_dataset=rows, processing_class=student.chat.tokenizer
    )


def _own_side_only(ours: Iterator[StepRecord], args: Any) -> dict[str, float]:
    records = [next(ours) for _ in range(args.warmup + args.steps)][args.warmup :]
    for r in records:
        parts = "  ".join(f"{part} {getattr(r, f'{part}_seconds'):.2f}" for part in PARTS)
        print(f"{parts}  tokens {r.target_tokens}  kl {r.kl:.4f}", flush=True)
    if args.profile:
        print_profile("recover", lambda: next(ours))
    return {}


if __name__ == "__main__":
    main()
