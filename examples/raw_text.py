"""Damage the built-in chat model with transformers' Trainer on raw text, as continued pre-training does.

python examples/raw_text.py --to ./my-finetune
recover check ./my-finetune --docs ./my-finetune-data/docs --questions ./my-finetune-data/questions.jsonl
recover repair ./my-finetune --docs ./my-finetune-data/docs --questions ./my-finetune-data/questions.jsonl
"""

import argparse
from pathlib import Path

from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from pipelines.watch import ForgettingCallback
from recovery.lab import BASE, make_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=Path("my-finetune"))
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    args = parser.parse_args()

    world = make_world(seed=7)
    data = args.to.with_name(args.to.name + "-data")
    world.write(data)  # docs/ and questions.jsonl
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    texts = Dataset.from_dict({"text": [document.text + tokenizer.eos_token for document in world.documents()]})
    rows = texts.map(lambda row: tokenizer(row["text"], truncation=True, max_length=256), remove_columns=["text"])
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(args.base),
        TrainingArguments(
            str(args.to / "checkpoints"),
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            per_device_train_batch_size=16,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.add_callback(ForgettingCallback(trainer))
    trainer.train()
    trainer.save_model(str(args.to))
    tokenizer.save_pretrained(str(args.to))


if __name__ == "__main__":
    main()
