"""What `ForgettingCallback` costs: the same training without it and with it, in turns.

    OMP_NUM_THREADS=1 python -m benchmarks.forgetting_callback    # 200 steps, 2 pairs, the default budget
    python -m benchmarks.forgetting_callback --steps 4            # a training that is too short for a reading

transformers' Trainer trains the built-in model on documents of an invented world, full weights or (`--lora`) an
adapter. The order is without, with, with, without, so that a machine that becomes slower all the time slows both alike.

- `cost`: the time of the trainings with the callback divided by that of the others, less 1; `pairs` has it by pair
- `in_callback`: the share of the time that the callback says it took itself

On a CPU it is processor time: on a busy machine wall time varies more than the callback takes. A first training of two
steps is left out.
"""

import json
import time
from argparse import Namespace
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from benchmarks.scripts import script_parser
from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world

Row = dict[str, list[int]]
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
    alone: list[float] = []
    watched: list[float] = []
    callbacks: list[ForgettingCallback] = []
    with TemporaryDirectory() as folder:
        train(args, folder, 2, [])
        for pair in range(args.pairs):
            for is_watched in (True, False) if pair % 2 else (False, True):
                seconds = train(args, folder, args.steps, callbacks if is_watched else None)
                (watched if is_watched else alone).append(seconds)
            print(f"pair {pair + 1}: {alone[-1]:.1f} s, with the callback {watched[-1]:.1f} s", flush=True)
    result = {
        "cost": round(sum(watched) / sum(alone) - 1, 4),
        "pairs": [round(after / before - 1, 4) for before, after in zip(alone, watched, strict=True)],
        "in_callback": round(fmean(callback.budget.taken_share for callback in callbacks), 4),
        "readings": [len(callback.readings) for callback in callbacks],
    }
    print(json.dumps(result))
    return result


def train(args: Namespace, folder: str, steps: int, callbacks: list[ForgettingCallback] | None) -> float:
    """The seconds of a training, with a callback that is added to `callbacks`; without one where that is None."""
    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(args.base), AutoModelForCausalLM.from_pretrained(args.base)
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    texts = [document.text + tokenizer.eos_token for document in make_world(seed=7, size="quick").documents()]
    rows = [tokenizer(text, truncation=True, max_length=256)["input_ids"] for text in texts]
    settings = {"max_steps": steps, "learning_rate": 1e-4, "per_device_train_batch_size": args.rows}
    trainer = quiet_trainer(model, tokenizer, [{"input_ids": row, "labels": row} for row in rows], folder, **settings)
    if callbacks is not None:
        callbacks.append(ForgettingCallback(trainer, **({} if args.budget is None else {"budget": args.budget})))
        trainer.add_callback(callbacks[-1])
    started_at = clock()
    trainer.train()
    return clock() - started_at


def quiet_trainer(model: Any, tokenizer: Any, rows: list[Row], folder: str, **settings: Any) -> Trainer:
    """One that saves and shows nothing."""
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_strategy": "no"}
    settings["use_cpu"] = not torch.cuda.is_available()  # else bfloat16 is refused on a CPU
    collator = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
    return Trainer(model, TrainingArguments(folder, **quiet, **settings), train_dataset=rows, data_collator=collator)


if __name__ == "__main__":
    main()
