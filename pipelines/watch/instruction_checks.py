"""Checked instructions, asked again and again during a training: the loss that is certain at all times together."""

import time
from dataclasses import dataclass, field

from evals.results import Item
from evals.stats.paired_comparison import PairedTest, paired_test
from evals.suites.instruction_following import Prompt
from pipelines.watch import probe_rows
from pipelines.watch.clean_rows import NEW_TOKENS, clean_model
from pipelines.watch.probe_rows import WatchedModel

ALPHA = 0.05  # of warning without a loss, over all times together
TRIAL_TOKENS = 5


@dataclass
class InstructionChecks:
    prompts: list[Prompt]
    clean: dict[str, bool] = field(default_factory=dict)  # whether the clean model follows each
    asked: int = 0

    @property
    def is_ready(self) -> bool:
        return bool(self.clean)

    def read_clean(self, model: WatchedModel) -> None:
        with clean_model(model):
            self.clean = _passed(probe_rows.answer(model, self.prompts, NEW_TOKENS))

    def test(self, model: WatchedModel) -> PairedTest:
        with probe_rows.evaluating(model.model):
            passed = _passed(probe_rows.answer(model, self.prompts, NEW_TOKENS))
        self.asked += 1
        # 1/2 + 1/6 + 1/12 + … is 1: all times together claim a loss without one with the probability ALPHA.
        return paired_test(self.clean, passed, 1 - ALPHA / (self.asked * (self.asked + 1)))

    def expected_seconds(self, model: WatchedModel, rows: int) -> float:
        """Of so many replies: measured on their first tokens."""
        with probe_rows.evaluating(model.model):
            # The first call also loads the checks, and a GPU prepares itself for rows of this shape.
            _, first, several = (self._seconds_of(model, rows, tokens) for tokens in (TRIAL_TOKENS, 1, TRIAL_TOKENS))
        return first + max(0.0, several - first) / (TRIAL_TOKENS - 1) * NEW_TOKENS

    def _seconds_of(self, model: WatchedModel, rows: int, tokens: int) -> float:
        started_at = time.monotonic()
        probe_rows.answer(model, self.prompts[:rows], tokens)
        return time.monotonic() - started_at


def _passed(items: list[Item]) -> dict[str, bool]:
    return {item.key: item.passed for item in items}
