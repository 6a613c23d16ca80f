"""What `ForgettingCallback` costs: the same training without it and with it, in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.forgetting_callback    # 200 steps, 2 pairs, the default budget
    python -m benchmarks.forgetting_callback --steps 4            # a training that is too short for a reading

transformers' Trainer trains the built-in model on documents of an invented world, full weights or (`--lora`) an
adapter. The order is without, with, with, without, so that a machine that becomes slower all the time slows both alike.

- `cost`: the time of the trainings with the callback divided by that of the others, less 1; `pairs` has it by pair
- `in_callback`: the share of the time that the callback takes itself, in the trainings with it
- `steps`: the median time of a step (without what the callback does at its end) with it divided by that without, less 1

On a CPU it is processor time: on a busy machine wall time varies more than the callback takes. A first training of two
steps is left out.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.scripts import script_parser
from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world

clock = time.perf_counter if torch.cuda.is_available() else time.process_time


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = script_parser(__doc__)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--budget", type=float, help="of the callback; without it, the default")
    parser.add_argument("--lora", action="store_true")
    args = parser.parse_args(arguments)
    alone: list[Training] = []
    watched: list[Training] = []
    with TemporaryDirectory() as folder:
        train(args, Path(folder), 2, is_watched=True)
        for pair in range(args.pairs):
            for is_watched in (True, False) if pair % 2 else (False, True):
                (watched if is_watched else alone).append(train(args, Path(folder), args.steps, is_watched=is_watched))
            print(
                f"pair {pair + 1}: {alone[-1].seconds:.1f} s, with the callback {watched[-1].seconds:.1f} s", flush=True
            )
    medians = [statistics.median([s for training in kind for s in training.steps]) for kind in (alone, watched)]
    seconds = [sum(training.seconds for training in kind) for kind in (alone, watched)]
    result = {
        "cost": round(seconds[1] / seconds[0] - 1, 4),
        "pairs": [round(b.seconds / a.seconds - 1, 4) for a, b in zip(alone, watched, strict=True)],
        "in_callback": round(sum(training.in_callback for training in watched) / seconds[1], 4),
        "steps": round(medians[1] / medians[0] - 1, 4),
        "readings": [training.readings for training in watched],
    }
    print(json.dumps(result))
    return result


@dataclass
class Training:
    seconds: float = 0.0
    steps: list[float] = field(default_factory=list)  # seconds of each
    in_callback: float = 0.0
    readings: int = 0


class _Clock(TrainerCallback):
    """The seconds of every step; added before the callback that is measured."""

    def __init__(self, steps: list[float]):
        self.steps, self.started_at = steps, 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started_at = clock()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(clock() - self.started_at)


class _Timed(ForgettingCallback):
    seconds = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._time(super().on_train_begin, *args, **kwargs)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self._time(super().on_step_end, *args, **kwargs)

    def _time(self, hook: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        started_at = clock()
        hook(*args, **kwargs)
        self.seconds += clock() - started_at


def train(args: argparse.Namespace, folder: Path, steps: int, *, is_watched: bool) -> Training:
    result = Training()
    trainer = make_trainer(args, folder, steps)
    trainer.add_callback(_Clock(result.steps))
    callback = _Timed(trainer, **({} if args.budget is None else {"budget": args.budget})) if is_watched else None
    if callback:
        trainer.add_callback(callback)
    started_at = clock()
    trainer.train()
    result.seconds = clock() - started_at
    if callback:
        result.in_callback, result.readings = callback.seconds, len(callback.readings)
    return result


def make_trainer(args: argparse.Namespace, folder: Path, steps: int) -> Trainer:
    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(args.base), AutoModelForCausalLM.from_pretrained(args.base)
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    texts = [document.text + tokenizer.eos_token for document in make_world(seed=7, size="quick").documents()]
    return Trainer(
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


if __name__ == "__main__":
    main()
