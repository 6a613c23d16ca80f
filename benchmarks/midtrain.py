"""Mid-training: tokens per second of our loop and of transformers' `Trainer` on the same packed windows.

python -m benchmarks.midtrain [--steps 8] [--bf16] [--profile]
"""

from typing import Any

import torch

from benchmarks.common import (
    RATE,
    Side,
    clone,
    compare_speeds,
    model_folder,
    print_profile,
    speed_parser,
    time_alternating,
    trainer_settings,
)
from pipelines.training.midtrain import MEASURE_EVERY
from recovery.lab import own_world
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.states import Documents, FixedRows
from recovery.train import Plan, train


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = speed_parser(__doc__, steps=10)
    parser.add_argument("--rows", type=int, default=16, help="windows per step (default 16)")
    parser.add_argument("--window", type=int, default=256, help="tokens per window (default 256)")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    student = load_student(model_folder(args.model, args.shape), device=args.device)
    other = clone(student)
    steps = args.steps + args.warmup
    documents = _documents(student, args, steps)
    # Both sides see the same windows in the same order.
    rows = [row.tokens for step in range(steps) for row in documents.draw(student, step)]
    # A step is one forward pass on both sides.
    tokens_at_once = args.rows * (args.window + 1)
    plan = Plan(10**6, RATE, tokens_at_once=tokens_at_once, bf16=args.bf16, measure_every=MEASURE_EVERY)
    ours = train(student, documents, Labels(), CrossEntropy(), plan)
    trainer = _trainer(other, rows, args, steps)
    times, own_times, records = time_alternating(trainer, ours, args.warmup)
    peer_losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    tokens, loss, peer_loss = [args.rows * args.window] * args.steps, records[-1].loss, peer_losses[-1]
    ratio = compare_speeds(
        args,
        f"{args.rows} windows of {args.window} tokens",
        Side("Trainer", tokens, times, [f"{peer_loss:.4f}"]),
        Side("recover", tokens, own_times, [f"{loss:.4f}"]),
        ["last loss"],
    )
    if args.profile:
        batch = torch.tensor(rows[: args.rows], device=args.device)
        print_profile("Trainer", lambda: trainer.training_step(trainer.model, {"input_ids": batch, "labels": batch}))
        print_profile("recover", lambda: next(ours))
    return {"ratio": ratio, "loss": loss, "trainer loss": peer_loss}


def _documents(student: Student, args: Any, steps: int) -> FixedRows:
    tokenizer, end = student.chat.tokenizer, student.chat.separator
    texts = [tokenizer(document.text, add_special_tokens=False)["input_ids"] for document in own_world().documents()]
    needed = args.rows * args.window * (steps + 2)
    texts *= 1 + needed // sum(len(text) for text in texts)
    drawn = Documents(texts, end, window=args.window, rows=args.rows * (steps + 1)).draw(student, 0)
    return FixedRows([row for row in drawn if len(row.tokens) == args.window + 1], rows=args.rows)


def _trainer(student: Student, rows: list[list[int]], args: Any, steps: int) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import Trainer, TrainingArguments

    settings = trainer_settings(args, steps)
    arguments = TrainingArguments(**settings, train_sampling_strategy="sequential", logging_steps=1)
    examples = Dataset.from_dict({"input_ids": rows, "labels": rows}).with_format("torch")
    return Trainer(student.model, arguments, train_dataset=examples)


if __name__ == "__main__":
    main()
