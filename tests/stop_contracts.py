"""Ways to break how a model ends its turns, each on a copy of the built-in model."""

import shutil
from pathlib import Path
from random import Random

import torch
from transformers import AutoTokenizer

from recovery.lab import BASE, make_world
from recovery.models.students import Student, load_causal, load_student, save_student
from recovery.samples import Batch, Sample
from tests.chats import exchange
from tests.models import change_json

END, SEPARATOR = 2, 0  # <|im_end|> and <|endoftext|> of the built-in model


def copy_of_base(folder: Path) -> Path:
    return Path(shutil.copytree(BASE, folder, ignore=shutil.ignore_patterns("recover.json")))


def stop_at_the_separator_only(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=SEPARATOR)


def stop_beyond_the_vocabulary(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=99999)


def stop_nowhere(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=None)


def write_no_end(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("<|im_end|>", ""))


def overwrite_the_row(folder: Path) -> None:
    """As a merged adapter may: the end of a turn is nearly orthogonal to what it was, and gets no probability."""
    causal = load_causal(str(folder), torch.float32)
    with torch.no_grad():
        causal.get_output_embeddings().weight[END] *= -1
    causal.save_pretrained(folder)


def end_with_a_new_token(folder: Path) -> None:
    """Embeddings that were resized, and no training of the new row."""
    tokenizer, causal = AutoTokenizer.from_pretrained(folder), load_causal(str(folder), torch.float32)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|done|>"]})
    causal.resize_token_embeddings(len(tokenizer))
    causal.generation_config.eos_token_id = len(tokenizer) - 1
    causal.save_pretrained(folder)
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_end|>", "<|done|>")
    tokenizer.save_pretrained(folder)


def mask_the_end_as_padding(folder: Path) -> None:
    """A few steps of SFT at a high rate, with the end out of the loss, as where it is also the padding."""
    student = load_student(str(folder))
    train_without_ends(student, learning_rate=5e-3)
    save_student(student, folder, {})
    change_json(folder / "tokenizer_config.json", pad_token="<|im_end|>")


def end_with_the_separator(folder: Path) -> None:
    """A few steps of SFT on chats that were given the end of documents."""
    student = load_student(str(folder))
    _train(student, learning_rate=5e-3, end=SEPARATOR)
    save_student(student, folder, {})
    change_json(folder / "generation_config.json", eos_token_id=END)


def train_without_ends(student: Student, learning_rate: float, steps: int = 10) -> None:
    _train(student, learning_rate, steps)


def _train(student: Student, learning_rate: float, steps: int = 10, end: int | None = None) -> None:
    """On short answers with another end, or without one."""
    rows = []
    for question in make_world(seed=7).questions()[:160]:
        tokens, targets = student.chat.conversation(exchange(question.question, question.answer))
        learned = [is_target and (id != END or end is not None) for id, is_target in zip(tokens, targets, strict=True)]
        rows.append(Sample(tokens if end is None else [*tokens[:-1], end], learned))
    optimizer, random = torch.optim.AdamW(student.trainable(), lr=learning_rate), Random(0)
    for _ in range(steps):
        batch = Batch.collate(random.sample(rows, 16), student.chat.pad_id, student.device)
        logits = student.head.logits(student.hidden(batch)).float()
        labels = batch.tokens[batch.target_rows, batch.target_columns]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
