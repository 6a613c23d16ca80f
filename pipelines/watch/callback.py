"""`ForgettingCallback`: readings of what a model forgets while transformers' Trainer, or any of TRL's, trains it."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from evals.results import Item
from evals.stats.paired_comparison import paired_test
from evals.suites.instruction_following import Prompt
from pipelines.log import log
from pipelines.watch import probe_rows
from pipelines.watch.budget import Budget
from pipelines.watch.probe_rows import Rows, WatchedModel
from pipelines.watch.record import WatchRecord
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.samples import Sample

ALPHA = 0.05  # of warning without a loss, over all readings together
MIN_LOSS = 0.01  # that a warning is worth
ROWS, FACTS, NEW_TOKENS, TRIAL_TOKENS = 8, 32, 160, 4


@dataclass
class _Clean:
    """What the clean model does on the probes: computed once, so that it need not stay in memory."""

    of_training: Rows
    of_replies: Rows
    prompts: list[Prompt]
    passed: dict[str, bool]
    facts: list[Sample]
    fact_logprobs: list[float]


class ForgettingCallback(TrainerCallback):  # type: ignore[misc]
    """Takes cheap readings and warns once loss of instruction following is certain.

    Add it once the trainer exists: `trainer.add_callback(ForgettingCallback(trainer))`. The readings go to the
    trainer's own logs: `forgetting/kl_training` and `forgetting/kl_replies` (KL of the clean model to this one on rows
    of the training data, and on replies that the clean model wrote), `forgetting/instructions` (the difference of the
    share of `probes` instructions that are followed) and `forgetting/known` (the difference of the log-likelihood of
    answers that the clean model knew).

    `budget` is the share of the training's time that readings may take, `every` a minimum of steps between two. With
    an adapter the clean model is the one below it; otherwise it is read before the first step. `stop` ends the training
    at the warning. `record` is the folder of a project in which the readings are stored as a run. The training may run
    in one process, or in several with a whole copy of the model each."""

    def __init__(
        self,
        trainer: Any,
        *,
        every: int | None = None,
        budget: float = 0.05,
        probes: int = 60,
        stop: bool = False,
        record: str | Path | None = None,
    ):
        self.trainer, self.stop, self.probes = trainer, stop, probes
        self.budget = Budget(budget, every)
        self.warning: str | None = None
        self.readings: list[dict[str, float]] = []
        self._record = WatchRecord(Path(record)) if record is not None else None
        self._clean: _Clean | None = None
        self._dataloader: Any = None
        self._step_started_at = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._dataloader = kwargs.get("train_dataloader")
        if self._record:
            self._record.start(self._base, state.max_steps)
        if not self._has_adapter:
            self._timed(lambda: self._read_clean_if_it_fits(args, state.max_steps), is_reading=False)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step_started_at = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.budget.stepped(time.monotonic() - self._step_started_at)
        if self._has_adapter and self._clean is None and not self.budget.expected:
            self._timed(self._try_reading, is_reading=False)
        clean_is_unavailable = not self._has_adapter and self._clean is None  # the weights have moved on
        if clean_is_unavailable or not self.budget.is_due(state.max_steps):
            return
        if self._clean is None:
            self._timed(self._read_clean, is_reading=False)
        values = self._timed(lambda: self._read(state.global_step, args.output_dir), is_reading=True)
        self.trainer.log(values)
        if self._record:
            self._record.step(state.global_step, values)
        if self.warning and self.stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.readings:
            log.warning(
                f"No reading of forgetting was taken: it did not fit into {100 * self.budget.share:g} % of the "
                "training's time. Check the result with `recover check`."
            )
        if self._record:
            self._record.finish()

    @property
    def _has_adapter(self) -> bool:
        return hasattr(self.trainer.model, "peft_config")

    @property
    def _base(self) -> str:
        model = self.trainer.model
        if self._has_adapter:
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

    def _read_clean(self) -> None:
        model = self._model()
        without_adapter: AbstractContextManager[Any] = (
            self.trainer.model.disable_adapter() if self._has_adapter else nullcontext()
        )
        with probe_rows.evaluating(model.model), without_adapter:
            prompts, facts = (
                probe_rows.instruction_probes(self.probes),
                probe_rows.known_facts(model, self._base, FACTS),
            )
            items = probe_rows.answer(model, prompts, NEW_TOKENS)
            self._clean = _Clean(
                Rows.of_clean(model, probe_rows.training_rows(self._dataloader, ROWS)),
                Rows.of_clean(model, probe_rows.own_reply_rows(model, ROWS, NEW_TOKENS)),
                prompts,
                _passed(items),
                facts,
                probe_rows.answer_logprobs(model, facts),
            )

    def _read_clean_if_it_fits(self, args: Any, max_steps: int) -> None:
        """Full weights can be read before the first step only, when no step has been timed yet: a step takes about
        three times the forward pass of its rows."""
        rows = probe_rows.training_rows(self._dataloader, ROWS)
        if rows:
            self._try_reading()
            with probe_rows.evaluating(self.trainer.model):
                started_at = time.monotonic()
                Rows.of_clean(self._model(), rows)
                forward = (time.monotonic() - started_at) / len(rows)
            in_step = args.per_device_train_batch_size * args.gradient_accumulation_steps
            if self.budget.expected > self.budget.share * 3 * forward * in_step * max_steps:
                return
        started_at = time.monotonic()
        self._read_clean()
        self.budget.expected = time.monotonic() - started_at

    def _try_reading(self) -> None:
        """Reply with a few tokens, to know beforehand what the clean model's reading and the first one will cost."""
        with probe_rows.evaluating(self.trainer.model):
            probes = probe_rows.instruction_probes(self.probes)
            probe_rows.answer(self._model(), probes[:1], 1)  # the first call also loads the checks
            started_at = time.monotonic()
            probe_rows.answer(self._model(), probes, TRIAL_TOKENS)
        self.budget.expected = 2 * NEW_TOKENS / TRIAL_TOKENS * (time.monotonic() - started_at)

    def _read(self, step: int, output: str) -> dict[str, float]:
        clean, model = self._clean, self._model()
        assert clean is not None
        with probe_rows.evaluating(model.model):
            passed = _passed(probe_rows.answer(model, clean.prompts, NEW_TOKENS))
            known = probe_rows.answer_logprobs(model, clean.facts)
            rows = {"forgetting/kl_training": clean.of_training, "forgetting/kl_replies": clean.of_replies}
            values = {name: of.kl(model) for name, of in rows.items() if of.samples}
        values["forgetting/known"] = (sum(known) - sum(clean.fact_logprobs)) / len(known)
        number = len(self.readings) + 1
        # 1/2 + 1/6 + 1/12 + … is 1: all readings together warn without a loss with the probability ALPHA.
        test = paired_test(clean.passed, passed, 1 - ALPHA / (number * (number + 1)))
        values["forgetting/instructions"] = test.difference
        values["forgetting/share_of_time"] = self.budget.taken_share
        self.readings.append({"step": step, **values})
        if test.high <= -MIN_LOSS and self.warning is None:
            self.warning = (
                f"Instruction following is down by at least {-100 * test.high:.0f} points after {step:,} steps. "
                f"`recover repair {output} --base {self._base}` brings it back; or lower the rate, or mix in replay."
            )
            log.warning(self.warning)
        return values

    def _timed(self, work: Any, *, is_reading: bool) -> Any:
        started_at = time.monotonic()
        result = work()
        self.budget.spent(time.monotonic() - started_at, is_reading=is_reading)
        return result


def _passed(items: list[Item]) -> dict[str, bool]:
    return {item.key: item.passed for item in items}
