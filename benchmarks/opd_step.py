"""One step of on-policy distillation, end to end: our loop against TRL's `DistillationTrainer`.

    python -m benchmarks.opd_step [--steps 8] [--bf16] [--shape qwen3-0.6b] [--engine vllm]

The student is the teacher with noise added to its weights. Both sides use the same prompts in the same order, the same
limit of new tokens, and the exact reverse KL. TRL runs without gradient checkpointing, which saves it a forward pass.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from benchmarks.common import (
    RATE,
    Side,
    clone,
    compare_speeds,
    model_folder,
    perturbed,
    print_profile,
    speed_parser,
    time_alternating,
    trainer_settings,
)
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

PARTS = ("rollout", "teacher", "update")


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = speed_parser(__doc__, steps=8)
    parser.add_argument("--rows", type=int, default=64, help="prompts per step (default 64)")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument(
        "--engine", default="transformers", choices=["auto", "transformers", "vllm"], help="of our side"
    )
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    folder = model_folder(args.model, args.shape)
    student = perturbed(folder, args.device)
    other = clone(student)
    count = args.rows * (args.steps + args.warmup + 1)
    texts = [task.prompt for task in instruction_tasks(0, count, "train")]
    with open_engine(student, args.engine) as engine:
        return _compare(_recover(student, folder, texts, engine, args), other, folder, texts, args)


def _compare(ours: Iterator[StepRecord], other: Student, folder: str, texts: list[str], args: Any) -> dict[str, float]:
    steps = args.steps + args.warmup
    # The other side gets the prompts in the order of our loop.
    in_order = [texts[i] for _, i in ShuffledOrder(len(texts), 0).take(0, args.rows * steps)]
    trainer = _trl(other, folder, in_order, args, steps)
    lengths: list[float] = trainer._metrics["train"]["completions/mean_length"]
    times, own_times, records = time_alternating(trainer, ours, args.warmup)
    tokens = [length * args.rows for length in lengths[args.warmup :]]
    own_tokens = [r.target_tokens for r in records]
    parts = [f"{median([getattr(r, f'{part}_seconds') for r in records]):.2f}" for part in PARTS]
    ratio = compare_speeds(
        args,
        f"{args.rows} prompts, at most {args.max_new_tokens} new tokens",
        Side("TRL", tokens, times, [""] * len(PARTS)),
        Side("recover", own_tokens, own_times, parts),
        [f"{part} s" for part in PARTS],
    )
    if args.profile:
        print_profile("recover", lambda: next(ours))
    return {"ratio": ratio, "tokens": median(own_tokens), "trl tokens": median(tokens)}


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
        **trainer_settings(args, steps),
        max_completion_length=args.max_new_tokens,
        beta=1.0,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        logging_steps=10**6,
    )
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])
    teacher = load_student(folder, frozen=True, device=args.device).model
    return DistillationTrainer(
        student.model, teacher, args=config, train_dataset=rows, processing_class=student.chat.tokenizer
    )


if __name__ == "__main__":
    main()
