"""`ForgettingCallback`: readings of what a model forgets while transformers' Trainer, or any of TRL's, trains it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from transformers import Trainer, TrainerCallback

from pipelines.log import log
from pipelines.watch import probe_rows
from pipelines.watch.budget import Budget
from pipelines.watch.clean_rows import REPLIES, ROWS, CleanRows
from pipelines.watch.early_warning import MOST_LOOKS, EarlyWarning
from pipelines.watch.instruction_checks import InstructionChecks
from pipelines.watch.other_trainers import obstacle, on_any_process
from pipelines.watch.probe_rows import Rows, WatchedModel
from pipelines.watch.record import WatchRecord
from recovery.errors import first_line
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat

MIN_LOSS = 0.01  # that is worth a sentence once it is certain
FOR_ROWS = 0.7  # of the budget; the rest is for checked instructions
FOR_LOOKS = 0.6  # at single replies, of what is left of the budget for rows when the clean model has been read
MOST_FOR_REPLIES = 0.8  # of the budget for rows; the rest is left for reading them
T = TypeVar("T")


class ForgettingCallback(TrainerCallback):  # type: ignore[misc]
    """Takes cheap readings, and warns when a loss of instruction following is likely and when it is certain.

    Add it once the trainer exists: `trainer.add_callback(ForgettingCallback(trainer))`. The readings go to the
    trainer's own logs: `forgetting/kl_training` and `forgetting/kl_replies` (KL of the clean model to this one on rows
    of the training data, and on its replies to instructions) and `forgetting/known` (the difference of the
    log-likelihood of answers that the clean model knew). `forgetting/instructions` (the difference of the share of
    `probes` instructions that are followed) takes replies, and so is read more rarely.

    Between two readings it looks at single replies, and takes a reading at once where the KL has risen. `budget` is
    the share of the training's time that all this may take, `every` a minimum of steps between two readings as long as
    nothing has risen. With an adapter the clean model is the one below it; otherwise it is read before the first step.
    `stop` ends the training at the first warning. `record` is the folder of a project in which the readings are stored
    as a run. Of several processes with a whole copy of the model each, the first one reads. Where nothing can be read,
    a sentence says why, and the training goes on."""

    def __init__(
        self,
        trainer: Any,
        *,
        every: int | None = None,
        budget: float = 0.04,
        probes: int = 60,
        stop: bool = False,
        record: str | Path | None = None,
    ):
        self.trainer, self.stop, self.share = trainer, stop, budget
        self.budgets = {
            "rows": Budget(FOR_ROWS * budget, every),
            "looks": Budget(0.0),
            "checks": Budget((1 - FOR_ROWS) * budget, every),
        }
        self.warning: str | None = None  # the first one
        self.readings: list[dict[str, float]] = []
        self._record = WatchRecord(Path(record)) if record is not None else None
        self._rows: CleanRows | None = None
        self._early: EarlyWarning | None = None
        self._checks = InstructionChecks(probe_rows.instruction_probes(probes))
        self._reads = False  # whether this process takes readings
        self._is_prepared = False
        self._given: set[str] = set()  # the kinds of warnings that were given
        self._dataloader: Any = None
        self._first_step = 0  # of this training, which may go on from a checkpoint
        self._step_started_at = 0.0

    @property
    def share_of_time(self) -> float:
        """What readings and checks have taken of the training's time so far."""
        return sum(budget.taken_share for budget in self.budgets.values())

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._reads, self._first_step = state.is_world_process_zero, state.global_step
        self._dataloader = kwargs.get("train_dataloader")
        with self._training_goes_on():
            if problem := obstacle(self.trainer, state.global_step) if self._reads else None:
                self._reads = False
                log.warning(f"Forgetting is not measured: {problem}. Check the result with `recover check`.")
            if not self._reads:
                return
            if self._record:
                self._record.start(self._base, state.max_steps)
            if not self._model().has_adapter:
                in_step = args.per_device_train_batch_size * args.gradient_accumulation_steps
                rows = in_step * state.max_steps
                self._read_clean_model(self._timed("rows", lambda: self._expected_training_seconds(rows)))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step_started_at = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        seconds = time.monotonic() - self._step_started_at
        with self._training_goes_on():
            if self._reads:
                self._read(seconds, args, state, control)
        if self.stop and on_any_process(self.warning is not None, args.device):
            control.should_training_stop = True

    def _read(self, step_seconds: float, args: Any, state: Any, control: Any) -> None:
        for budget in self.budgets.values():
            budget.stepped(step_seconds)
        rows, steps = self.budgets["rows"], state.max_steps - self._first_step
        if not self._is_prepared and rows.steps > 1:  # the first step is slower than the others
            self._read_clean_model(rows.training_seconds * steps / rows.steps)
        if values := self._due_readings(state.global_step, steps, args.output_dir):
            values["forgetting/share_of_time"] = self.share_of_time
            self.readings.append({"step": state.global_step, **values})
            self._log(values, control)
            if self._record:
                self._record.step(state.global_step, values)

    def _log(self, values: dict[str, float], control: Any) -> None:
        """To the trainer's own log, without taking the place of the line that the trainer may be about to write."""
        should_log = control.should_log
        Trainer.log(self.trainer, dict(values))  # TRL's trainers empty their own metrics in theirs
        control.should_log = should_log

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reads and not self.readings:
            log.warning(
                f"No reading of forgetting was taken: it did not fit into {100 * self.share:g} % of the "
                "training's time. Check the result with `recover check`."
            )
        if self._reads and self._record:
            self._record.finish()

    @contextmanager
    def _training_goes_on(self) -> Iterator[None]:
        """A failure here must not end a training of hours: it is said once, and nothing is read any more."""
        try:
            yield
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
        return WatchedModel(self.trainer.model, self._chat, self._base)

    @cached_property
    def _chat(self) -> Chat:
        """Of the trainer's tokenizer, or of the base where the trainer has none with a chat template."""
        tokenizer = getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)
        if getattr(tokenizer, "chat_template", None):
            return Chat.from_tokenizer(tokenizer, getattr(self.trainer.model, "generation_config", None))
        return load_chat(self._base)

    def _expected_training_seconds(self, rows_in_all: int) -> float:
        """A step takes about three times the forward pass of its rows, or of prompts where those cannot be had."""
        model = self._model()
        with probe_rows.evaluating(self.trainer.model):
            rows = probe_rows.training_rows(self._dataloader, ROWS) or probe_rows.prompt_rows(model, ROWS)
            Rows.of_clean(model, rows[:1])  # the first call is slower
            started_at = time.monotonic()
            Rows.of_clean(model, rows)
        return 3 * (time.monotonic() - started_at) / len(rows) * rows_in_all

    def _read_clean_model(self, training_seconds: float) -> None:
        """Read it once, as far as the training is expected to be long enough to pay for it."""
        self._is_prepared = True
        model, checks = self._model(), self._checks
        affordable = {name: budget.share * training_seconds for name, budget in self.budgets.items()}
        expected = self._timed("rows", lambda: checks.expected_seconds(model, REPLIES))
        if expected > MOST_FOR_REPLIES * affordable["rows"]:
            return
        self._rows = self._timed("rows", lambda: CleanRows.read(model, self._base, self._dataloader, checks.prompts))
        self.budgets["rows"].expected = self._rows.seconds
        self.budgets["looks"].expected = self._rows.seconds / max(1, len(self._rows.of_replies))
        self.budgets["rows"].give(self.budgets["looks"], FOR_LOOKS, training_seconds)
        self._early = EarlyWarning(self._rows.of_replies)
        expected = self._timed("checks", lambda: checks.expected_seconds(model, len(checks.prompts)))
        if 2 * expected <= affordable["checks"]:
            self._timed("checks", lambda: checks.read_clean(model))
            self.budgets["checks"].expected = expected

    def _due_readings(self, step: int, max_steps: int, output: str) -> dict[str, float]:
        values: dict[str, float] = {}
        model, rows, early = self._model(), self._rows, self._early
        if rows and early and (self.budgets["rows"].is_due(max_steps) or self._is_called_for(early, model, max_steps)):
            read, kls = self._timed("rows", lambda: rows.values(model), is_reading=True)
            values |= read
            if kls and (finding := early.read(step, read["kl_replies"], kls)):
                self._warn(
                    "likely",
                    f"Instruction following is likely to suffer: after {step:,} steps the KL to the clean model on its "
                    f"replies is {finding}. Lower the learning rate, or mix in the clean model's "
                    f"answers; `recover check {output} --base {self._base}` measures the loss.",
                )
        if self._checks.is_ready and self.budgets["checks"].is_due(max_steps):
            test = self._timed("checks", lambda: self._checks.test(model), is_reading=True)
            values["instructions"] = test.difference
            if test.high <= -MIN_LOSS:
                self._warn(
                    "certain",
                    f"Instruction following is down by at least {-100 * test.high:.0f} points after {step:,} steps. "
                    f"`recover repair {output} --base {self._base}` brings it back; or lower the rate, or mix in "
                    "replay.",
                )
        return {f"forgetting/{name}": value for name, value in values.items()}

    def _is_called_for(self, early: EarlyWarning, model: WatchedModel, max_steps: int) -> bool:
        """Whether a look at a few replies calls for a reading at once."""
        budget = self.budgets["looks"]
        if not early.replies or "likely" in self._given or not budget.is_due(max_steps):
            return False
        looks = min(MOST_LOOKS, budget.fit_in_a_step(max_steps))
        has_risen = self._timed("looks", lambda: early.has_risen(model, looks), is_reading=True, parts=looks)
        return has_risen and self.budgets["rows"].affords(max_steps)

    def _warn(self, kind: str, sentence: str) -> None:
        """Each kind once."""
        if kind not in self._given:
            self._given.add(kind)
            self.warning = self.warning or sentence
            log.warning(sentence)

    def _timed(self, budget: str, work: Callable[[], T], *, is_reading: bool = False, parts: int = 1) -> T:
        started_at = time.monotonic()
        result = work()
        self.budgets[budget].spent(time.monotonic() - started_at, is_reading=is_reading, parts=parts)
        return result
