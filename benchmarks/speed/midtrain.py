"""Mid-training: tokens a second of our loop against transformers' `Trainer` on the same packed windows."""

from typing import Any

import torch

from benchmarks.common import in_turns, median, model_folder, parser, profiled, table, twin
from recovery.lab import own_world
from recovery.losses.objectives import CrossEntropy
from recovery.models.students import Student, load_student
from recovery.signals import Labels
from recovery.states import Documents, ShuffledOrder
from recovery.train import Plan, train

RATE = 1e-4


def main(arguments: list[str] | None = None) -> dict[str, float]:
    options = parser(__doc__, steps=10)
    options.add_argument("--rows", type=int, default=16, help="windows a step (default 16)")
    options.add_argument("--window", type=int, default=256, help="tokens a window (default 256)")
    asked = options.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    student = load_student(model_folder(asked.model, asked.shape), device=asked.device)
    other = twin(student)
    steps = asked.steps + asked.warmup
    documents = _documents(student, asked, steps)
    # Both sides see the same windows in the same order.
    rows = [row.tokens for step in range(steps) for row in documents.draw(student, step)]
    # A step is one pass, as it is on the other side.
    at_once = asked.rows * (asked.window + 1)
    plan = Plan(steps=10**6, learning_rate=RATE, bf16=asked.bf16, tokens_at_once=at_once)
    ours = train(student, documents, Labels(), CrossEntropy(), plan)
    theirs = _trainer(other, rows, asked, steps)
    seconds, own_seconds, records = in_turns(theirs, ours, asked.steps, asked.warmup)
    tokens = asked.rows * asked.window
    wall, cpu = (tokens / median([getattr(t, kind) for t in seconds]) for kind in ("wall", "cpu"))
    own_wall, own_cpu = (tokens / median([getattr(t, kind) for t in own_seconds]) for kind in ("wall", "cpu"))
    print(
        f"{asked.rows} windows of {asked.window} tokens, {'bf16' if asked.bf16 else 'float32'}, "
        f"{asked.threads} threads, {asked.steps} steps of each in turn"
    )
    table(
        ["", "tokens/s", "ratio", "tokens/CPU s", "ratio", "last loss"],
        [
            ["Trainer", f"{wall:.0f}", "1.00", f"{cpu:.0f}", "1.00", f"{_last_loss(theirs):.4f}"],
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
    if asked.profile:
        batch = torch.tensor(rows[: asked.rows], device=asked.device)
        profiled("Trainer", lambda: theirs.training_step(theirs.model, {"input_ids": batch, "labels": batch}))
        profiled("recover", lambda: next(ours))
    return {"ratio": own_wall / wall, "loss": records[-1].loss, "their loss": _last_loss(theirs)}


def _documents(student: Student, asked: Any, steps: int) -> Documents:
    tokenizer, end = student.chat.tokenizer, next(iter(sorted(student.chat.eos_ids)))
    texts = [tokenizer(document.text, add_special_tokens=False)["input_ids"] for document in own_world().documents()]
    needed = asked.rows * asked.window * (steps + 2)
    texts *= 1 + needed // sum(len(text) for text in texts)
    documents = Documents(texts, end, window=asked.window, rows=asked.rows)
    documents.windows = [window for window in documents.windows if len(window) == asked.window + 1]
    documents.order = ShuffledOrder(len(documents.windows), 1)
    return documents


def _trainer(student: Student, rows: list[list[int]], asked: Any, steps: int) -> Any:
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir="unused",
        per_device_train_batch_size=asked.rows,
        max_steps=steps,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        bf16=asked.bf16,
        use_cpu=asked.device == "cpu",
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
