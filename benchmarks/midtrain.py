"""Mid-training: tokens per second of our loop and of transformers' `Trainer` on the same packed windows.

python -m benchmarks.midtrain [--steps 8] [--bf16] [--profile]
"""

from tempfile import gettempdir
from typing import Any

import torch

from benchmarks.common import clone, median, model_folder, print_profile, speed_parser, time_alternating
from benchmarks.scripts import table
from pipelines.training.midtrain import MEASURE_EVERY
from recovery.lab import own_world
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.states import Documents, ShuffledOrder
from recovery.train import Plan, train

RATE = 1e-4


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
    seconds, own_seconds, records = time_alternating(trainer, ours, args.steps, args.warmup)
    tokens = args.rows * args.window
    wall, cpu = (tokens / median([getattr(t, kind) for t in seconds]) for kind in ("wall", "cpu"))
    own_wall, own_cpu = (tokens / median([getattr(t, kind) for t in own_seconds]) for kind in ("wall", "cpu"))
    print(
        f"{args.rows} windows of {args.window} tokens, {'bf16' if args.bf16 else 'float32'}, "
        f"{args.threads} threads, {args.steps} alternating steps per side"
    )
    table(
        ["", "tokens/s", "ratio", "tokens/CPU s", "ratio", "last loss"],
        [
            ["Trainer", f"{wall:.0f}", "1.00", f"{cpu:.0f}", "1.00", f"{_last_loss(trainer):.4f}"],
            [
                "recover",
                f"{own_wall:.0f}",
                f"{own_wall / wall:.2f}",
                f"{own_cpu:.0f}",
                f"{own_cpu / cpu:.2f}",
                f"{records[-1].loss:.4f}",
            ],
        ],
    )
    if args.profile:
        batch = torch.tensor(rows[: args.rows], device=args.device)
        print_profile("Trainer", lambda: trainer.training_step(trainer.model, {"input_ids": batch, "labels": batch}))
        print_profile("recover", lambda: next(ours))
    return {"ratio": own_wall / wall, "loss": records[-1].loss, "trainer loss": _last_loss(trainer)}


def _documents(student: Student, args: Any, steps: int) -> Documents:
    tokenizer, end = student.chat.tokenizer, student.chat.separator
    texts = [tokenizer(document.text, add_special_tokens=False)["input_ids"] for document in own_world().documents()]
    needed = args.rows * args.window * (steps + 2)
    texts *= 1 + needed // sum(len(text) for text in texts)
    documents = Documents(texts, end, window=args.window, rows=args.rows)
    all_windows = [documents.windows[i] for i in range(len(documents.windows))]
    windows: Any = [window for window in all_windows if len(window) == args.window + 1]
    documents.windows, documents.order = windows, ShuffledOrder(len(windows), 1)
    return documents


def _trainer(student: Student, rows: list[list[int]], args: Any, steps: int) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=gettempdir(),  # nothing is saved
        per_device_train_batch_size=args.rows,
        max_steps=steps,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        bf16=args.bf16,
        use_cpu=args.device == "cpu",
        train_sampling_strategy="sequential",
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
    )
    examples = Dataset.from_dict({"input_ids": rows, "labels": rows}).with_format("torch")
    return Trainer(student.model, arguments, train_dataset=examples)


def _last_loss(trainer: Any) -> float:
    return next(entry["loss"] for entry in reversed(trainer.state.log_history) if "loss" in entry)


if __name__ == "__main__":
    main()
