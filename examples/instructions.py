"""Fine-tuning with TRL's SFTTrainer and LoRA on an instruction file with one kind of answers.

pip install -e ".[bench]"   # TRL; in the checkout
python examples/instructions.py --to ./my-finetune
recover check ./my-finetune --docs ./my-finetune-data.jsonl
recover repair ./my-finetune --docs ./my-finetune-data.jsonl
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=Path("my-finetune"))
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    args = parser.parse_args()

    data = args.to.with_name(args.to.name + "-data.jsonl")
    rows = [{"messages": [{"role": "user", "content": q.question}, {"role": "assistant", "content": q.answer}]}
            for q in make_world(seed=7).questions()]  # fmt: skip
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    trainer = SFTTrainer(
        args.base,
        SFTConfig(
            str(args.to / "checkpoints"),
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            per_device_train_batch_size=16,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            bf16=torch.cuda.is_available(),  # TRL's default is true
        ),
        train_dataset=load_dataset("json", data_files=str(data), split="train"),
        peft_config=LoraConfig(r=16, target_modules="all-linear"),
    )
    trainer.add_callback(ForgettingCallback(trainer))
    trainer.train()
    trainer.save_model(str(args.to))


if __name__ == "__main__":
    main()
