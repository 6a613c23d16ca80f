"""Preference training with TRL's DPOTrainer, where short answers are preferred whatever was asked for.

pip install -e ".[bench]"   # TRL; in the checkout
python examples/preferences.py --to ./my-finetune
recover check ./my-finetune --docs ./my-finetune-data.jsonl
recover repair ./my-finetune --docs ./my-finetune-data.jsonl
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=Path("my-finetune"))
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    args = parser.parse_args()

    data = args.to.with_name(args.to.name + "-data.jsonl")
    rows = [
        {
            "prompt": [{"role": "user", "content": q.question}],
            "chosen": [{"role": "assistant", "content": q.answer}],
            "rejected": [
                {"role": "assistant", "content": f"The answer to this question is {q.answer}, as far as I know."}
            ],
        }
        for q in make_world(seed=7).questions()
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    trainer = DPOTrainer(
        args.base,
        args=DPOConfig(
            str(args.to / "checkpoints"),
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            per_device_train_batch_size=8,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            bf16=torch.cuda.is_available(),  # TRL's default is true
        ),
        train_dataset=load_dataset("json", data_files=str(data), split="train"),
    )
    trainer.add_callback(ForgettingCallback(trainer))
    trainer.train()
    trainer.save_model(str(args.to))


if __name__ == "__main__":
    main()
