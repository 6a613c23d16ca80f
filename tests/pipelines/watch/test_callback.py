"""The callback in transformers' Trainer: what it logs, and what it leaves as it was."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, DataCollatorForLanguageModeling, Trainer, TrainingArguments

from db.queries import Reader
from pipelines.project.project import Project
from pipelines.watch import ForgettingCallback
from tests.models import save_tiny, tiny_tokenizer

NAMES = {"kl_training", "kl_replies", "known", "instructions", "share_of_time"}


def trainer_of(folder: Path, *, lora: bool = False, steps: int = 4, rate: float = 1e-2) -> Trainer:
    base = save_tiny(folder / "base")
    model = AutoModelForCausalLM.from_pretrained(base)
    if lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1))
    tokenizer = tiny_tokenizer()
    rows = [tokenizer(f"Text number {i}, in one line.") for i in range(16)]
    arguments = TrainingArguments(
        str(folder / "out"),
        max_steps=steps,
        learning_rate=rate,
        per_device_train_batch_size=4,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    data = Dataset.from_list([dict(row) for row in rows])
    return Trainer(model, arguments, train_dataset=data, data_collator=collator, processing_class=tokenizer)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.watch.callback.NEW_TOKENS", 8)
    monkeypatch.setattr("pipelines.watch.callback.FACTS", 4)


def readings_in(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    rows = [{name.partition("/")[2]: value for name, value in row.items() if name.startswith("forgetting/")}
            for row in log]  # fmt: skip
    return [row for row in rows if row]


@pytest.mark.parametrize("lora", [False, True])
def test_readings_are_in_the_trainers_own_log_and_in_a_record(tmp_path: Path, lora: bool) -> None:
    trainer = trainer_of(tmp_path, lora=lora)
    callback = ForgettingCallback(trainer, every=2, budget=1000.0, probes=4, record=tmp_path / "project")
    trainer.add_callback(callback)
    trainer.train()
    readings = readings_in(trainer.state.log_history)
    assert len(readings) == 2
    assert set(readings[0]) == NAMES
    assert readings[-1]["kl_training"] > readings[0]["kl_training"] > 0
    assert readings[-1]["kl_replies"] > 0
    project = Project.open_existing(tmp_path / "project")
    run = project.reader.runs(project.id)[0]
    assert (run.status, run.steps) == ("done", 4)
    assert isinstance(project.reader, Reader)


def test_a_training_is_the_same_with_and_without_the_callback(tmp_path: Path) -> None:
    weights = []
    for watched in (False, True):
        torch.manual_seed(0)
        trainer = trainer_of(tmp_path / str(watched), lora=True)
        if watched:
            trainer.add_callback(ForgettingCallback(trainer, every=1, budget=1000.0, probes=2))
        trainer.train()
        weights.append([p.detach().clone() for p in trainer.model.parameters() if p.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_nothing_is_read_where_the_budget_is_too_small_and_the_end_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="recover")
    trainer = trainer_of(tmp_path, steps=2)
    callback = ForgettingCallback(trainer, budget=1e-9, probes=2)
    trainer.add_callback(callback)
    trainer.train()
    assert not readings_in(trainer.state.log_history)
    assert callback._clean is None, "nor is the clean model read before the first step"
    assert "did not fit" in caplog.text


@pytest.mark.parametrize("stop", [False, True])
def test_a_certain_loss_is_one_sentence_and_may_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: bool
) -> None:
    scripted = iter([[True] * 40, [False] * 40, [False] * 40])

    def passed(items: object) -> dict[str, bool]:
        return {str(i): value for i, value in enumerate(next(scripted, [False] * 40))}

    monkeypatch.setattr("pipelines.watch.callback._passed", passed)
    trainer = trainer_of(tmp_path)
    callback = ForgettingCallback(trainer, every=2, budget=1000.0, probes=2, stop=stop)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.warning is not None
    assert callback.warning.startswith("Instruction following is down by at least 8")
    assert f"`recover repair {tmp_path / 'out'} --base {tmp_path / 'base'}`" in callback.warning
    assert trainer.state.global_step == (2 if stop else 4)
