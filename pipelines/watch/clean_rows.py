"""What the clean model expects on a few rows, and how far the trained model has moved from it: forward passes only."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from evals.suites.instruction_following import Prompt
from pipelines.watch import probe_rows
from pipelines.watch.probe_rows import Rows, WatchedModel
from recovery.models.adapters import preserve_adapter_state
from recovery.samples import Sample

ROWS, REPLIES, FACTS, NEW_TOKENS = 8, 24, 32, 160


@dataclass
class CleanRows:
    """Computed once, so that the clean model need not stay in memory."""

    of_training: Rows
    of_replies: list[Rows]  # each a reply
    facts: list[Sample]
    fact_logprobs: list[float]
    seconds: float  # of the forward passes, and so of a reading

    @classmethod
    def read(cls, model: WatchedModel, base: str, dataloader: Any, prompts: Sequence[Prompt]) -> "CleanRows":
        with clean_model(model):
            facts = probe_rows.known_facts(model, base, FACTS)
            replies = probe_rows.reply_rows(model, prompts[:REPLIES], NEW_TOKENS)
            rows = probe_rows.training_rows(dataloader, ROWS)
            started_at = time.monotonic()
            of_training, of_replies = Rows.of_clean(model, rows), [Rows.of_clean(model, [one]) for one in replies]
            known = probe_rows.answer_logprobs(model, facts)
            seconds = time.monotonic() - started_at
        return cls(of_training, [one for one in of_replies if one.targets], facts, known, seconds)

    def values(self, model: WatchedModel) -> tuple[dict[str, float], list[float]]:
        """A reading, and the KL on each reply."""
        with probe_rows.evaluating(model.model):
            values = {"kl_training": self.of_training.kl(model)} if self.of_training.targets else {}
            replies = [one.kl(model) for one in self.of_replies]
            known = probe_rows.answer_logprobs(model, self.facts)
        if targets := sum(one.targets for one in self.of_replies):
            weighted = [kl * one.targets for kl, one in zip(replies, self.of_replies, strict=True)]
            values["kl_replies"] = math.fsum(weighted) / targets
        values["known"] = (sum(known) - sum(self.fact_logprobs)) / len(known)
        return values, replies


@contextmanager
def clean_model(model: WatchedModel) -> Iterator[None]:
    """The model without its adapter; with full weights it is clean before the first step only."""
    with ExitStack() as stack:
        stack.enter_context(probe_rows.evaluating(model.model))
        if model.has_adapter:
            stack.enter_context(preserve_adapter_state(model.model))
            stack.enter_context(model.model.disable_adapter())
        yield
