"""What `ForgettingCallback` costs: the same training with it and without, in turns, step by step.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.forgetting_callback    # 200 steps, the default budget
    python -m benchmarks.speed.forgetting_callback --steps 4            # a training that is too short for a reading

transformers' Trainer trains the built-in model on documents of an invented world, full weights or (`--lora`) an
adapter. Both trainings run in one process, a step of the one after a step of the other, so that a machine that becomes
slower slows both. The cost is the time of the one with the callback, from its beginning to its end, divided by that of
the other, less 1. On a CPU it is processor time. The interval comes from the differences of the steps. Two trainings of
two steps are left out.
"""

import argparse
import json
import math
import statistics
import threading
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
    TrainerCallback,
    TrainingArguments,
)

from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world

WATCHED, ALONE = 0, 1


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--lora", action="store_true")
    args = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        train_both(args, Path(folder), 2)
        turns, callback = train_both(args, Path(folder), args.steps)
    watched, alone = turns.seconds[WATCHED], turns.seconds[ALONE]
    differences = [a - b for a, b in zip(watched, alone, strict=True)]
    error = 1.96 * statistics.pstdev(differences) * math.sqrt(len(differences)) / sum(alone)
    cost = sum(watched) / sum(alone) - 1
    result = {
        "seconds": [round(sum(alone), 1), round(sum(watched), 1)],
        "cost": round(cost, 4),
        "interval": [round(cost - error, 4), round(cost + error, 4)],
        "own_account": round(callback.share_of_time, 4),
        "readings": len(callback.readings),
    }
    print(json.dumps(result))
    return result


class Turns:
    """Two threads of which one works at a time, until its next step. Keeps the seconds of every turn."""

    def __init__(self) -> None:
        self.seconds: tuple[list[float], list[float]] = ([], [])
        self._may_work = (threading.Semaphore(1), threading.Semaphore(0))
        self._clock = time.perf_counter if torch.cuda.is_available() else time.process_time
        self._started_at = 0.0

    def begin(self, who: int) -> None:
        self._may_work[who].acquire()
        self._started_at = self._clock()

    def end(self, who: int) -> None:
        self.seconds[who].append(self._clock() - self._started_at)
        self._may_work[1 - who].release()


class _Turn(TrainerCallback):
    def __init__(self, turns: Turns, who: int):
        self.turns, self.who = turns, who

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.turns.end(self.who)
        self.turns.begin(self.who)


def train_both(args: argparse.Namespace, folder: Path, steps: int) -> tuple[Turns, ForgettingCallback]:
    turns, trainers = Turns(), [make_trainer(args, folder / str(who), steps) for who in (WATCHED, ALONE)]
    for who in (WATCHED, ALONE):
        trainers[who].add_callback(_Turn(turns, who))  # first, so that no step includes the wait for its turn
    callback = ForgettingCallback(trainers[WATCHED], budget=args.budget)
    trainers[WATCHED].add_callback(callback)

    def train(who: int) -> None:
        turns.begin(who)
        try:
            trainers[who].train()
        finally:
            turns.end(who)

    threads = [threading.Thread(target=train, args=[who]) for who in (WATCHED, ALONE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return turns, callback


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
