import random
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch.utils.data import IterableDataset
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    DataCollatorWithFlattening,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from db import RecordError
from evals.results import Item
from pipelines.project.project import Project
from pipelines.watch import ForgettingCallback, readings
from pipelines.watch.callback import RECORD_PAUSE, Budget, Kind, Record, obstacle
from pipelines.watch.readings import InstructionReadings, RowReadings
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from tests.models import save_tiny, tiny_tokenizer
from tests.pipelines.options import recover

NAMES = {"kl_training", "kl_instructions", "kl_limit", "known", "instructions", "share_of_time"}


def trainer_of(
    folder: Path, *, lora: bool | list[str] = False, steps: int = 4, rate: float = 1e-2, **arguments: Any
) -> Trainer:
    base = save_tiny(folder / "base", tied=not isinstance(lora, list))
    model = AutoModelForCausalLM.from_pretrained(base)
    if lora:
        targets = lora if isinstance(lora, list) else "all-linear"
        model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, lora_dropout=0.1))
    tokenizer = tiny_tokenizer()
    rows = [tokenizer(f"Text number {i}, in one line.") for i in range(16)]
    settings = {"logging_steps": 100, "save_strategy": "no"} | arguments
    settings |= {"max_steps": steps, "learning_rate": rate, "per_device_train_batch_size": 4, "report_to": "none"}
    training_arguments = TrainingArguments(str(folder / "out"), use_cpu=True, disable_tqdm=True, seed=1, **settings)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    data = Dataset.from_list([dict(row) for row in rows])
    return Trainer(model, training_arguments, train_dataset=data, data_collator=collator, processing_class=tokenizer)


class EndsAfter(TrainerCallback):
    def __init__(self, steps: int):
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= state.global_step >= self.steps


def trained(trainer: Trainer, **options: Any) -> ForgettingCallback:
    """The callback of a training, after its end."""
    callback = ForgettingCallback(trainer, **{"probes": 2} | options)
    trainer.add_callback(callback)
    trainer.train()
    return callback


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.watch.readings.NEW_TOKENS", 8)
    monkeypatch.setattr("pipelines.watch.readings.FACTS", 4)


def readings_in(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    rows = [{name.partition("/")[2]: value for name, value in row.items() if name.startswith("forgetting/")}
            for row in log]  # fmt: skip
    return [row for row in rows if row]


@pytest.mark.parametrize(("lora", "bf16"), [(False, False), (True, False), (False, True)])
def test_readings_are_in_the_log_and_in_a_record_and_change_no_training(tmp_path: Path, lora: bool, bf16: bool) -> None:
    weights = []
    for watched in (False, True):
        torch.manual_seed(0)
        trainer = trainer_of(tmp_path / str(watched), lora=lora, bf16=bf16, logging_steps=1)
        for name, parameter in trainer.model.named_parameters():
            if "layers.0" in name and "lora_A" in name:
                parameter.requires_grad_(False)
        before = {name: p.requires_grad for name, p in trainer.model.named_parameters()}
        trained(trainer, every=1, probes=4, record=tmp_path / "project") if watched else trainer.train()
        assert {name: p.requires_grad for name, p in trainer.model.named_parameters()} == before
        weights.append([p.detach().clone() for p in trainer.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert [row["step"] for row in trainer.state.log_history if "loss" in row] == [1, 2, 3, 4]
    readings = readings_in(trainer.state.log_history)
    assert len(readings) == 4
    assert set(readings[0]) == NAMES
    assert readings[-1]["kl_training"] > readings[0]["kl_training"] > 0
    assert readings[-1]["kl_instructions"] > 0
    project = Project.open_existing(tmp_path / "project")
    run = project.reader.runs(project.id)[0]
    assert (run.status, run.steps) == ("done", 4)


def test_resumed_full_weights_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer_of(tmp_path, steps=2, save_strategy="steps", save_steps=2).train()
    for lora in (False, True):
        trainer = trainer_of(tmp_path, lora=lora, save_strategy="steps", save_steps=2)
        trainer.add_callback(ForgettingCallback(trainer, every=1, probes=2))
        trainer.train(resume_from_checkpoint=not lora)
        assert bool(readings_in(trainer.state.log_history)) == lora
        assert trainer.state.global_step == 4
    assert caplog.text.count("the training goes on from a checkpoint, so the clean weights are not in memory") == 1


def test_a_reading_that_fails_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(RowReadings, "read", fail)
    trainer = trainer_of(tmp_path)
    trained(trainer, every=1)
    assert trainer.state.global_step == 4
    assert caplog.text.count("no longer measured (RuntimeError: out of memory); the training goes on") == 1


def test_rows_that_are_no_batch_are_left_out() -> None:
    prompts = SimpleNamespace(dataset=[{"prompt": "a"}] * 4, collate_fn=lambda rows: rows)  # as GRPO has them
    assert readings.training_rows(prompts, 2) == []


def test_rows_are_as_long_as_they_are_where_the_collator_joins_them() -> None:
    rows = [{"input_ids": [1] * length, "labels": [1] * length} for length in (3, 5, 7)]
    joined = SimpleNamespace(dataset=rows, collate_fn=DataCollatorWithFlattening())
    assert sorted(len(row.tokens) for row in readings.training_rows(joined, 3)) == [3, 5, 7]


def test_a_stream_that_tells_its_length_has_no_rows_to_read() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([])

        def __len__(self) -> int:
            return 4

    assert readings.training_rows(SimpleNamespace(dataset=Stream(), collate_fn=list), 2) == []


def test_the_random_numbers_of_the_collator_are_left_as_they_were() -> None:
    class Collator:
        def __init__(self) -> None:
            self.random, self.model = Random(0), torch.nn.Linear(1, 1)
            self.models = {id(self.model)}

        def __call__(self, rows: list[Any]) -> dict[str, Any]:
            assert id(self.model) in self.models, "a model is not copied"
            return {"input_ids": torch.tensor([[self.random.randrange(9) for _ in range(4)]])}

    collator = Collator()
    before = collator.random.getstate()
    assert len(readings.training_rows(SimpleNamespace(dataset=[0] * 3, collate_fn=collator), 2)) == 2
    assert collator.random.getstate() == before


def test_all_random_states_are_left_as_they_were() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    model = torch.nn.Linear(1, 1)
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(1)
    expected = draw()
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(1)
    with readings.evaluating(model):
        draw()
    assert draw() == expected


def test_too_small_a_budget_reads_nothing_and_the_end_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = trainer_of(tmp_path, steps=2)
    callback = trained(trainer, budget=1e-9)
    assert not readings_in(trainer.state.log_history)
    assert callback._rows is None, "nor is the clean model read before the first step"
    assert "did not fit" in caplog.text
    beyond_the_end = trained(trainer_of(tmp_path, steps=2), every=100)
    assert "not measured: the training has 2 steps, and every=100 is more; choose a smaller number" in caplog.text
    assert beyond_the_end._rows is None
    ends_early = trainer_of(tmp_path, steps=4)
    ends_early.add_callback(EndsAfter(1))
    trained(ends_early, every=3)
    assert "No reading of forgetting was taken: the training ended before step 3. Check" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"every": 0}, "every is 0. It must be a whole number, at least 1."),
        ({"every": "10"}, "every is '10'."),
        ({"probes": -1}, "probes is -1. It must be a whole number, at least 0."),
        ({"budget": "0.03"}, "budget is '0.03'. It must be a share"),
        ({"budget": 0}, "budget is 0."),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], sentence: str) -> None:
    trainer = trainer_of(tmp_path)
    with pytest.raises(RecoverError, match=re.escape(sentence)):
        ForgettingCallback(trainer, **arguments)
    with pytest.raises(RecoverError, match="takes the trainer, not a Qwen"):
        ForgettingCallback(trainer.model)


def test_a_trainer_without_any_tokenizer_is_told_how_to_have_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(tmp_path, steps=2)
    trainer.processing_class = None
    trainer.model.config._name_or_path = ""
    trained(trainer, every=1)
    assert "Forgetting is not measured: the trainer has no tokenizer with a chat template" in caplog.text
    assert "processing_class=tokenizer" in caplog.text


@pytest.mark.parametrize("stop", [False, True])
def test_a_certain_loss_is_one_sentence_and_may_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stop: bool
) -> None:
    monkeypatch.setattr("pipelines.watch.readings.LIMIT_PER_ENTROPY", float("inf"))
    scripted = iter([[True] * 40, [False] * 40, [False] * 40])

    def answer(found: InstructionReadings, model: object, tokens: int) -> list[Item]:
        outcomes = next(scripted, [False] * 40) if tokens == 8 else []
        return [Item(str(i), "", "", passed, {"finished": True}) for i, passed in enumerate(outcomes)]

    monkeypatch.setattr(InstructionReadings, "expected_seconds", lambda found, model: 0.0)
    monkeypatch.setattr(InstructionReadings, "_answer", answer)
    trainer = trainer_of(tmp_path)
    callback = trained(trainer, every=2, stop=stop)
    assert callback.warning.startswith("Instruction following is down by at least 79.6 points")
    assert f"`recover repair MODEL --base {tmp_path / 'base'}`" in callback.warning
    assert caplog.text.count("is down by at least") == 1, "only once"
    assert trainer.state.global_step == (2 if stop else 4)


@pytest.mark.parametrize(("limit", "warned"), [(1e-9, True), (float("inf"), False)])
def test_a_likely_loss_is_one_sentence_with_the_kl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: float, warned: bool
) -> None:
    monkeypatch.setattr("pipelines.watch.readings.LIMIT_PER_ENTROPY", limit)
    monkeypatch.setattr("pipelines.watch.callback.MIN_LOSS", float("inf"))
    callback = trained(trainer_of(tmp_path), every=2)
    kl = callback.readings[0]["forgetting/kl_instructions"]
    assert (callback.warning is not None) == warned
    assert caplog.text.count("is likely to suffer") == warned
    if callback.warning:
        assert f"after 2 steps the KL to the clean model on instructions is {kl:.2g} per token" in callback.warning
        assert f"`recover check MODEL --base {tmp_path / 'base'}`" in callback.warning


def test_readings_fit_into_the_budget_by_themselves(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, steps=5, rate=1e-5)
    callback = trained(trainer, budget=1000.0)
    assert set(readings_in(trainer.state.log_history)[0]) == NAMES
    assert [row["step"] for row in callback.readings] == [2, 3, 4, 5]


@pytest.mark.parametrize("options", [{"budget": 1000.0}, {"every": 2, "probes": 0}])
def test_without_probes_or_time_for_replies_the_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(InstructionReadings, "expected_seconds", lambda readings, model: 1e9)
    trainer = trainer_of(tmp_path)
    trained(trainer, **options)
    assert {name for row in readings_in(trainer.state.log_history) for name in row} == NAMES - {"instructions"}


@pytest.mark.parametrize("lora", [False, True])
def test_a_training_that_begins_again_is_compared_with_the_clean_model(tmp_path: Path, lora: bool) -> None:
    """As with `auto_find_batch_size`, after a batch that was too large."""
    trainer = trainer_of(tmp_path, lora=lora)
    callback = trained(trainer, every=2)
    before = callback.readings
    trainer.train()
    assert callback.readings[0]["step"] == 2
    assert callback.readings[0]["forgetting/kl_instructions"] > before[0]["forgetting/kl_instructions"]
    assert callback.budget.steps == 4


def test_an_attempt_that_was_given_up_is_a_run_of_its_own(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, lora=True)
    callback = ForgettingCallback(trainer, every=2, probes=2, record=tmp_path / "project")
    trainer.state.max_steps = 4
    callback.on_train_begin(trainer.args, trainer.state, trainer.control)  # and then the memory was too small
    trainer.add_callback(callback)
    trainer.train()
    project = Project.open_existing(tmp_path / "project")
    assert [run.status for run in project.reader.runs(project.id)] == ["done", "interrupted"]


def test_a_training_with_a_record_ends_after_its_step_when_asked(tmp_path: Path) -> None:
    class Asking(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                assert recover("cancel", 1, "--project", tmp_path / "project").exit_code == 0

    trainer = trainer_of(tmp_path, lora=True)
    trainer.add_callback(Asking())
    trained(trainer, every=1, record=tmp_path / "project")
    assert trainer.state.global_step == 2
    project = Project.open_existing(tmp_path / "project")
    assert [run.status for run in project.reader.runs(project.id)] == ["interrupted"]


def test_a_record_that_is_away_neither_ends_a_training_nor_is_asked_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, now, asked = Record(tmp_path / "project", str(save_tiny(tmp_path / "base")), 4), 0.0, []
    is_away = True

    def cancel_requested(run: int) -> bool:
        asked.append(now)
        if is_away:
            raise RecordError("the server restarts")
        return True

    monkeypatch.setattr(record.reader, "cancel_requested", cancel_requested)
    monkeypatch.setattr("pipelines.watch.callback.time.monotonic", lambda: now)
    answers = [record.ask(), record.ask()]
    is_away, now = False, RECORD_PAUSE
    assert [*answers, record.ask()] == [False, False, True]
    assert asked == [0.0, RECORD_PAUSE]


def test_a_record_of_another_base_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project = Project.open(tmp_path / "project", str(save_tiny(tmp_path / "other", seed=1)))
    assert not project.reader.runs(project.id)
    trainer = trainer_of(tmp_path)
    callback = trained(trainer, every=2, record=tmp_path / "project")
    assert trainer.state.global_step == 4
    assert [reading["step"] for reading in callback.readings] == [2, 4]
    assert f"has the base {tmp_path / 'other'}, not {tmp_path / 'base'}" in caplog.text
    assert not project.reader.runs(project.id)


def test_a_template_that_the_base_never_saw_makes_no_loss_likely(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "recover")
    for template in (None, "{% for m in messages %}### {{ m['content'] }}\n{% endfor %}"):
        trainer = trainer_of(tmp_path / str(template is None), rate=0.1)
        if template:
            trainer.processing_class.chat_template = template
        caplog.clear()
        callback = trained(trainer, every=2)
        assert callback.readings
        assert (callback.warning is None) is bool(template)
        assert ("The chat template is not that of the base" in caplog.text) is bool(template)


def test_models_that_cannot_be_read_are_told_by_what_they_are(tmp_path: Path) -> None:
    chat = Chat.from_tokenizer(tiny_tokenizer())
    trainer = trainer_of(tmp_path / "prompt")
    trainer.model = get_peft_model(trainer.model, PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"))
    assert obstacle(trainer, chat, 0) == "the adapter learns a prompt instead of weights"
    trainer.is_fsdp_enabled = True
    assert obstacle(trainer, chat, 0) == "several processes hold a part of the weights each"
    trainer = trainer_of(tmp_path / "head", lora=["q_proj", "lm_head"])
    assert obstacle(trainer, chat, 0) == "the adapter changes the output head"
    trainer = trainer_of(tmp_path / "injected")
    trainer.model.add_adapter(LoraConfig(target_modules=["q_proj"]))
    assert str(obstacle(trainer, chat, 0)).startswith("the adapter was added with add_adapter; wrap the model")
    trainer = trainer_of(tmp_path / "pissa")
    trainer.model = get_peft_model(trainer.model, LoraConfig(target_modules=["q_proj"], init_lora_weights="pissa"))
    expected = "the adapter was begun with pissa, which has changed the weights below it"
    assert obstacle(trainer, chat, 0) == expected
    trainer = trainer_of(tmp_path / "padding")
    trainer.processing_class.add_tokens(["<never used>"])
    assert obstacle(trainer, Chat.from_tokenizer(trainer.processing_class), 0) is None
    trainer = trainer_of(tmp_path / "shrunk")
    trainer.model.resize_token_embeddings(250)
    assert obstacle(trainer, chat, 0) == "the model has fewer tokens than its tokenizer"


def simulate(budget: Budget, costs: dict[Kind, float], steps: int, step_cost: float = 1.0, seed: int = 0) -> list[int]:
    """The steps of the readings of rows."""
    rng, at, budget.costs = Random(seed), [], dict(costs)
    for step in range(1, steps + 1):
        budget.add_step(step_cost * rng.uniform(0.8, 1.2))
        for kind, cost in costs.items():
            if budget.is_due(kind, steps):
                budget.add_cost(cost, kind)
                at += [step] if kind == "rows" else []
    return at


@pytest.mark.parametrize("seed", range(20))
def test_readings_take_at_most_their_share(seed: int) -> None:
    rng = Random(seed)
    steps, step_cost = rng.randrange(50, 2000), rng.uniform(0.1, 3)
    whole = steps * step_cost
    budget = Budget(0.05)
    budget.add_cost(whole * rng.uniform(0, 0.02))
    cost = whole * rng.uniform(0.001, 0.01)
    readings = simulate(budget, {"rows": cost, "spot_checks": cost / 10, "instructions": 2 * cost}, steps, step_cost)
    assert len(readings) >= 1
    assert 0.02 < budget.taken_share <= 0.05 * 1.1  # steps cost up to a fifth more or less than expected


def test_readings_are_denser_at_the_beginning() -> None:
    at = simulate(Budget(0.1), {"rows": 0.4}, 100)
    assert len(at) >= 10
    assert at[0] == 2
    assert at[len(at) // 2] < 50
    assert at[-1] == 100


def test_a_slow_first_step_does_not_count_for_all() -> None:
    budget = Budget(0.06, costs={"rows": 1.0})
    budget.add_step(30.0)
    at = []
    for step in range(2, 1001):
        budget.add_step(0.1)
        if budget.is_due("rows", 1000):
            budget.add_cost(1.0, "rows")
            at.append(step)
    assert at[-1] == 1000, "an inflated estimate has them all in the first steps"
    assert budget.taken_share <= 0.06


def test_no_reading_begins_that_is_expected_to_cost_too_much() -> None:
    assert simulate(Budget(0.05), {"rows": 10.0}, 100) == []
    assert simulate(Budget(0.05, spent_seconds=50.0), {"rows": 0.1}, 100) == [], "reading the clean model has taken all"
    assert simulate(Budget(0.05), {"rows": 4.0}, 100) == [100]


def test_every_is_the_number_of_steps_between_two_readings() -> None:
    assert simulate(Budget(0.0, every=30), {"rows": 5.0, "spot_checks": 0.0}, 100) == [30, 60, 90]
