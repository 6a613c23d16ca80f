"""What `ForgettingCallback` costs: the same training with it and without, in turns.

    python -m benchmarks.speed.forgetting_callback                  # 200 steps, 3 pairs, the default budget
    python -m benchmarks.speed.forgetting_callback --steps 4        # a training that is too short for a reading

transformers' Trainer trains the built-in model on documents of an invented world, full weights or (`--lora`) an
adapter. The cost is the time with the callback divided by that without it, less 1, of each pair. On a CPU it is
processor time: on a busy machine wall time varies more than the callback takes. A first training of two steps is left
out.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--lora", action="store_true")
    args = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        train(args, Path(folder), 2, is_watched=True)
        costs, readings = [], []
        for pair in range(args.pairs):
            seconds: dict[bool, float] = {}
            for is_watched in (True, False) if pair % 2 else (False, True):
                seconds[is_watched], count = train(args, Path(folder), args.steps, is_watched=is_watched)
                readings += [count] if is_watched else []
            costs.append(seconds[True] / seconds[False] - 1)
            print(f"pair {pair + 1}: {seconds[False]:.1f} s, with the callback {seconds[True]:.1f} s: {costs[-1]:+.1%}")
    result = {"cost": round(statistics.median(costs), 4), "pairs": [round(c, 4) for c in costs], "readings": readings}
    print(json.dumps(result))
    return result


def train(args: argparse.Namespace, folder: Path, steps: int, *, is_watched: bool) -> tuple[float, int]:
    """(seconds, readings that were taken)."""
    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(args.base), AutoModelForCausalLM.from_pretrained(args.base)
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    texts = [document.text + tokenizer.eos_token for document in make_world(seed=7, size="quick").documents()]
    trainer = Trainer(
        model,
        TrainingArguments(
            str(folder),
            max_steps=steps,
            learning_rate=1e-4,
            per_device_train_batch_size=args.rows,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=[dict(tokenizer(text, truncation=True, max_length=256)) for text in texts],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    callback = ForgettingCallback(trainer, budget=args.budget) if is_watched else None
    if callback:
        trainer.add_callback(callback)
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    started_at = clock()
    trainer.train()
    return clock() - started_at, len(callback.readings) if callback else 0


if __name__ == "__main__":
    main()
