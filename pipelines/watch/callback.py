"""`ForgettingCallback`: readings of what a model forgets while transformers' Trainer, or any of TRL's, trains it."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import torch
from torch.distributed.tensor import DTensor
from transformers import Trainer, TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled

from db import RecordError
from db.tables import WATCHED, RunInputs
from db.tracker import RunEnd
from evals.suites import lab
from pipelines.log import log
from pipelines.project.project import Project
from pipelines.training.training_run import RECORD_PAUSE
from pipelines.watch import readings as take
from pipelines.watch.readings import (
    InstructionReadings,
    RowReadings,
    WatchedModel,
    beginning,
    evaluating,
    instruction_rows,
    known_facts,
    training_rows,
)
from recovery.errors import RecoverError, first_line
from recovery.models.adapters import changed_base, changes_head, same_model
from recovery.models.chat_template import Chat, same_chat_template
from recovery.models.families import head_matches
from recovery.models.students import load_chat

PREFIX = "forgetting/"
MIN_LOSS = 0.01  # that is worth a sentence once it is certain
PASSES_OF_A_STEP = 3  # a step takes about three times the forward pass of its rows
Kind = Literal["rows", "spot_checks", "instructions"]
# Of what is left of the budget, what the readings of each kind are spread over.
PARTS: dict[Kind, float] = {"rows": 0.4, "spot_checks": 0.3, "instructions": 0.3}


class ForgettingCallback(TrainerCallback):  # type: ignore[misc]
    """Takes cheap readings, and warns when a loss of instruction following is likely and when it is certain.

    Add it once the trainer exists: `trainer.add_callback(ForgettingCallback(trainer))`. The readings go to the
    trainer's own logs: `forgetting/kl_training` and `forgetting/kl_instructions` (KL of the clean model to this one on
    rows of the training data, and on ready-made answers to instructions), `forgetting/kl_limit` (where the second of
    them makes a loss likely) and `forgetting/known` (the difference of the log-likelihood of answers that the clean
    model knew). `forgetting/instructions` (the difference of the share of `probes` instructions that are followed)
    takes replies, and so is read more rarely.

    `budget` is the share of the training's time that all this may take. Between two readings it checks a few answers,
    and takes a reading at once where the KL has risen. With `every` it reads after each so many steps instead, whatever
    that takes. With an adapter the clean model is the one below it; otherwise it is read before the first step.
    `stop` ends the training at the first warning. `record` is the folder of a project in which the readings are stored
    as a run, which `recover cancel` and the dashboard can stop. Of several processes with a whole copy of the model
    each, the first one reads. Where nothing can be read, a sentence says why, and the training goes on."""

    def __init__(
        self,
        trainer: Any,
        *,
        every: int | None = None,
        budget: float = 0.03,
        probes: int = 60,
        stop: bool = False,
        record: str | Path | None = None,
    ):
        _check_arguments(trainer, every, budget, probes)
        self.trainer, self.stop = trainer, stop
        self.budget = Budget(budget, every)
        self.readings: list[dict[str, float]] = []
        self._folder = record
        self._record: Record | None = None
        self._rows: RowReadings | None = None
        self._instructions = InstructionReadings(lab.instruction_prompts(probes, natural=True) if probes else [])
        self._reads = False  # whether this process takes readings
        self._warnings: dict[str, str] = {}  # by kind: likely, certain
        self._has_begun = False
        self._first_step = 0  # of this training, which may go on from a checkpoint
        self._step_started_at = 0.0

    @property
    def warning(self) -> str | None:
        return next(iter(self._warnings.values()), None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._reads, self._first_step = state.is_world_process_zero, state.global_step
        with self._without_ending_the_training():
            if self._reads and (problem := self._obstacle(state)):
                self._reads = False
                log.warning(f"Forgetting is not measured: {problem}. Check the result with `recover check`.")
            if not self._reads:
                return
            self._finish_record("interrupted")  # an attempt whose batch was too large
            if self._folder is not None:
                self._record = self._open_record(Path(self._folder), state.max_steps)
            if self._has_begun:
                self._begin_again()
            else:
                rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * state.max_steps
                self._read_clean_model(kwargs.get("train_dataloader"), rows)
                if self._reads_otherwise:
                    log.info(
                        "The chat template is not that of the base: a model that learns it moves away from the base "
                        "without any loss, so only a loss of instructions is warned of"
                    )
            self._has_begun = True

    def _open_record(self, folder: Path, steps: int) -> "Record | None":
        try:
            return Record(folder, self._base, steps)
        except (RecoverError, RecordError) as error:
            log.warning(f"The readings are only in the trainer's log: {error}")
            return None

    def _obstacle(self, state: Any) -> str | None:
        steps, every = state.max_steps - state.global_step, self.budget.every
        if every and every > steps:
            return f"the training has {steps:,} steps, and every={every} is more; choose a smaller number, or none"
        return obstacle(self.trainer, self._chat, state.global_step)

    def _read_clean_model(self, dataloader: Any, rows_of_the_training: int) -> None:
        """Once, as far as the training is expected to be long enough to pay for it and for one reading."""
        model, budget = self._model(), self.budget
        with budget.timed(), evaluating(model.model):  # a collator may draw random numbers
            training = training_rows(dataloader, take.TRAINING_ROWS)
            answers, facts = instruction_rows(model, take.INSTRUCTIONS), known_facts(model, take.FACTS)
        # A trainer whose rows cannot be had is expected to train on rows as long as those.
        example = training or answers
        training_tokens = rows_of_the_training * sum(len(row.tokens) for row in example) / len(example)
        training = [beginning(row) for row in training]
        tokens = sum(len(row.tokens) for row in (*training, *answers, *facts))
        if not budget.every and 2 * tokens > budget.share * PASSES_OF_A_STEP * training_tokens:
            return
        with budget.timed("rows"):
            self._rows = RowReadings(model, training, answers, facts)
        seconds = budget.costs["rows"]
        budget.costs["spot_checks"] = seconds / take.GROUPS
        self._read_clean_replies(PASSES_OF_A_STEP * seconds * training_tokens / tokens)

    def _read_clean_replies(self, training_seconds: float) -> None:
        """If the training pays for replies of the clean model and for one reading of them."""
        model, budget, instructions = self._model(), self.budget, self._instructions
        affordable = PARTS["instructions"] * (budget.share * training_seconds - budget.spent_seconds)
        # Replies take longer than a forward pass: no trial is needed to tell that they do not fit.
        least = budget.costs["rows"] * len(instructions.prompts) / take.INSTRUCTIONS
        if not instructions.prompts or (not budget.every and 2 * least > affordable):
            return
        with budget.timed():
            expected = instructions.expected_seconds(model)
        if budget.every or 2 * expected <= affordable:
            with budget.timed():
                instructions.read_clean(model)
            budget.costs["instructions"] = expected

    def _begin_again(self) -> None:
        """As after a batch that was too large (`auto_find_batch_size`). Full weights are no longer the clean ones, so
        what was read of those is kept."""
        self.budget = Budget(self.budget.share, self.budget.every, costs=self.budget.costs)
        self.readings, self._warnings, self._instructions.rounds = [], {}, 0
        if self._rows:
            self._rows.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step_started_at = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        seconds = time.monotonic() - self._step_started_at
        with self._without_ending_the_training():
            if self._reads and self._rows:
                self.budget.add_step(seconds)
                self._read(self._rows, state, control)
        if self.stop or self._folder is not None:
            is_cancelled = self._record is not None and self._record.ask()
            ends = torch.tensor([float(is_cancelled or (self.stop and self.warning is not None))], device=args.device)
            if self.trainer.accelerator.gather(ends).any():  # on any process
                control.should_training_stop = True
                if self._reads and not is_cancelled:
                    log.warning("The training ends here (stop=True)")

    def _read(self, rows: RowReadings, state: Any, control: Any) -> None:
        step, steps, model = state.global_step, state.max_steps - self._first_step, self._model()
        values: dict[str, float] = {}
        if self.budget.is_due("rows", steps) or self._has_risen(rows, model, steps):
            with self.budget.timed("rows"):
                values, finding = rows.read(model, step)
            if finding and not self._reads_otherwise:
                self._warn(
                    "likely",
                    f"Instruction following is likely to suffer: after {step:,} steps the KL to the clean model on "
                    f"instructions is {finding}. Lower the learning rate, or mix in the clean model's answers; "
                    f"`recover check MODEL --base {quote(self._base)}` measures the loss.",
                )
        if self._instructions.clean and self.budget.is_due("instructions", steps):
            with self.budget.timed("instructions"):
                test = self._instructions.read(model)
            if test:
                values["instructions"] = test.difference
            if test and test.high <= -MIN_LOSS:
                self._warn(
                    "certain",
                    f"Instruction following is down by at least {math.floor(-1000 * test.high) / 10:g} points after "
                    f"{step:,} steps. `recover repair MODEL --base {quote(self._base)}` tries to bring it back. Or "
                    "lower the learning rate, or mix in the clean model's answers.",
                )
        if values:
            values["share_of_time"] = self.budget.taken_share
            self._log(step, {PREFIX + name: value for name, value in values.items()}, control)

    def _has_risen(self, rows: RowReadings, model: WatchedModel, steps: int) -> bool:
        """Whether a check of a few answers, where one is due, calls for a reading at once."""
        if "likely" in self._warnings or not self.budget.is_due("spot_checks", steps):
            return False
        with self.budget.timed("spot_checks"):
            has_risen = rows.has_risen(model)
        return has_risen and self.budget.affords("rows", steps)

    def _log(self, step: int, values: dict[str, float], control: Any) -> None:
        """To the trainer's own log, without taking the place of the line that the trainer may be about to write."""
        self.readings.append({"step": step, **values})
        should_log = control.should_log
        Trainer.log(self.trainer, dict(values))  # TRL's trainers empty their own metrics in theirs
        control.should_log = should_log
        if self._record:
            self._record.tracker.step(self._record.run, step, values)

    def _warn(self, kind: str, sentence: str) -> None:
        if kind not in self._warnings:
            self._warnings[kind] = sentence
            log.warning(sentence)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reads and not self.readings and not self.warning:
            budget = f"it did not fit into {100 * self.budget.share:g} % of the training's time"
            why = f"the training ended before step {self.budget.every}" if self.budget.every else budget
            other = "" if self.budget.every else ", or read every N steps with ForgettingCallback(trainer, every=N)"
            log.warning(
                f"No reading of forgetting was taken: {why}. Check the saved model with `recover check`{other}."
            )
        with self._without_ending_the_training():
            is_cancelled = self._record is not None and self._record.is_cancelled
            self._finish_record("interrupted" if is_cancelled else "done" if self._reads else "failed")

    def _finish_record(self, status: RunEnd) -> None:
        if self._record:
            self._record.tracker.finish_run(self._record.run, status)
            self._record = None

    @contextmanager
    def _without_ending_the_training(self) -> Iterator[None]:
        """A failure here must not end a training of hours: it is said once, and nothing is read any more."""
        try:
            yield
        except RecoverError as error:
            self._reads = False
            log.warning(f"Forgetting is not measured: {str(error)[:1].lower()}{str(error)[1:]}")
        except Exception as error:
            self._reads = False
            log.warning(
                f"Forgetting is no longer measured ({type(error).__name__}: {first_line(error)}); the training goes "
                "on. Check the result with `recover check`."
            )

    @property
    def _base(self) -> str:
        model = self.trainer.model
        if hasattr(model, "peft_config"):
            return str(next(iter(model.peft_config.values())).base_model_name_or_path)
        return str(model.config._name_or_path)

    def _model(self) -> WatchedModel:
        return WatchedModel(self.trainer.model, self._chat, self._base, precision=self.trainer.accelerator.autocast)

    @cached_property
    def _chat(self) -> Chat:
        """Of the trainer's tokenizer, or of the base where the trainer has none with a chat template."""
        tokenizer = getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)
        if getattr(tokenizer, "chat_template", None):
            return Chat.from_tokenizer(tokenizer, getattr(self.trainer.model, "generation_config", None))
        try:
            return load_chat(self._base)
        except RecoverError as error:
            raise RecoverError(
                "The trainer has no tokenizer with a chat template, and its base has none, either. Give it one: "
                "Trainer(…, processing_class=tokenizer)."
            ) from error

    @cached_property
    def _reads_otherwise(self) -> bool:
        """Whether the base was trained with another chat template, or with none."""
        try:
            base = load_chat(self._base)
        except RecoverError:  # it is out of reach now
            return False
        return not base.tokenizer.chat_template or not same_chat_template(self._chat, base)


class Record:
    def __init__(self, folder: Path, base: str, steps: int):
        """The first run in a new folder makes a project there, with that base."""
        project = Project.open(folder, None if Project.exists(folder) else base)
        if not same_model(project.base, base):
            raise RecoverError(f"the project in {folder} has the base {project.base_name}, not {base}")
        self.tracker, self.reader, self.is_cancelled, self._ask_again = project.tracker, project.reader, False, 0.0
        self.run = self.tracker.start_run(project.id, "midtrain", steps=steps, inputs=RunInputs(stage=WATCHED))

    def ask(self) -> bool:
        """Whether the run was requested to stop (`recover cancel`, or the button of the dashboard)."""
        if time.monotonic() >= self._ask_again:
            try:
                self.is_cancelled = self.reader.cancel_requested(self.run)
            except Exception:  # the database is away: training goes on, and does not wait for it at every step
                self._ask_again = time.monotonic() + RECORD_PAUSE
        return self.is_cancelled


def _check_arguments(trainer: Any, every: Any, budget: Any, probes: Any) -> None:
    if not hasattr(trainer, "model") or not hasattr(trainer, "accelerator"):
        raise RecoverError(f"ForgettingCallback takes the trainer, not a {type(trainer).__name__}. Create that first.")
    numbers = {"every": (every, 1), "probes": (probes, 0)}
    for name, (value, least) in numbers.items():
        if (name, value) != ("every", None) and (type(value) is not int or value < least):
            raise RecoverError(f"{name} is {value!r}. It must be a whole number, at least {least}.")
    if type(budget) not in (int, float) or not budget > 0:
        raise RecoverError(f"budget is {budget!r}. It must be a share of the training's time, such as 0.03.")


def obstacle(trainer: Any, chat: Chat, step: int) -> str | None:
    """Why nothing can be read of the trainer's model; None if it can."""
    model = trainer.model
    if getattr(trainer, "is_fsdp_enabled", False) or is_deepspeed_zero3_enabled():
        return "several processes hold a part of the weights each"
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return "several processes hold a part of each layer"
    has_adapter = hasattr(model, "peft_config")
    if step and not has_adapter:
        return "the training goes on from a checkpoint, so the clean weights are not in memory"
    if has_adapter and not hasattr(model, "get_base_model"):
        return "the adapter was added with add_adapter; wrap the model with peft's get_peft_model instead"
    if has_adapter and (how := changed_base(model.active_peft_config)):
        return f"the adapter was begun with {how}, which has changed the weights below it"
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return "the layers are on several devices"
    if has_adapter and changes_head(model):
        return "the adapter changes the output head"
    if has_adapter and model.active_peft_config.is_prompt_learning:
        return "the adapter learns a prompt instead of weights"
    # Tokens that were added and that nothing uses, such as a padding, may have no row.
    needed = max(chat.tokenizer.vocab_size, *(id + 1 for id in (*chat.prompt("Hello?"), *chat.eos_ids)))
    if len(model.get_input_embeddings().weight) < needed:
        return "the model has fewer tokens than its tokenizer"
    with evaluating(model), trainer.accelerator.autocast():  # as the model's own forward pass
        is_usual = head_matches(model.get_base_model() if has_adapter else model)
    return None if is_usual else "its output layer computes logits in a way that is not supported"


@dataclass
class Budget:
    """Seconds of training and of readings. A reading is expected to cost what the last one of its kind did."""

    share: float  # of the training's time that readings may take
    every: int | None = None  # a reading after each so many steps, whatever it takes; None: as often as it fits
    steps: int = 0
    training_seconds: float = 0.0
    first_step_seconds: float = 0.0  # slower than the others: it compiles, connects, and starts workers
    spent_seconds: float = 0.0
    costs: dict[Kind, float] = field(default_factory=dict)
    last: dict[Kind, int] = field(default_factory=lambda: defaultdict(int))  # the step of the last reading

    def add_step(self, seconds: float) -> None:
        self.training_seconds += seconds
        self.steps += 1
        if self.steps == 1:
            self.first_step_seconds = seconds

    def add_cost(self, seconds: float, kind: Kind | None = None) -> None:
        """Of a reading of this kind, or of preparing them."""
        self.spent_seconds += seconds
        if kind:
            self.costs[kind], self.last[kind] = seconds, self.steps

    @contextmanager
    def timed(self, kind: Kind | None = None) -> Iterator[None]:
        started_at = time.monotonic()
        yield
        self.add_cost(time.monotonic() - started_at, kind)

    def is_due(self, kind: Kind, max_steps: int) -> bool:
        """Whether a reading fits now. Those that the rest of the training pays for are at steps that grow by a factor:
        a high learning rate does its damage early, and what comes later comes slowly."""
        if self.every:
            return kind != "spot_checks" and self.steps - self.last[kind] >= self.every
        if self.steps < 2 or not self.affords(kind, max_steps):
            return False  # after the first step it is not known yet what the others take
        last = max(1, self.last[kind])
        readings = PARTS[kind] * self._left(kind, max_steps) / max(self.costs[kind], 1e-9)
        return self.steps >= min(max_steps, last * math.pow(max_steps / last, min(1.0, 1 / readings)))

    def affords(self, kind: Kind, max_steps: int) -> bool:
        return self._left(kind, max_steps) > self.costs[kind]

    def _left(self, kind: Kind, max_steps: int) -> float:
        later = (self.training_seconds - self.first_step_seconds) * (max_steps - 1) / max(1, self.steps - 1)
        reserved = 0.0 if kind == "rows" else self.costs["rows"]  # for when something has risen, or for the end
        return self.share * (self.first_step_seconds + later) - self.spent_seconds - reserved

    @property
    def taken_share(self) -> float:
        return self.spent_seconds / self.training_seconds if self.training_seconds else 0.0
