"""What is read of a model while it trains: how far it has moved from the clean model, and what it no longer follows.

At a high learning rate a model loses instruction following within a few steps, between two readings. So a few answers
are checked after as many steps as the budget pays for, the first ones above all; if the KL on them has risen, a reading
of all is taken at once. Since the KL of such a training grows by a factor at each step, two readings also tell
where it will be soon.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from evals.results import Item
from evals.stats.paired_comparison import PairedTest, paired_test
from evals.subject import Subject
from evals.suites.instruction_following import Prompt, judge
from pipelines.watch.rows import Rows, answer_logprobs, clean_model, evaluating
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student
from recovery.samples import Sample

TRAINING_ROWS, INSTRUCTIONS, FACTS = 4, 16, 16
# The KL at which a loss of three points is likely, as a share of the clean model's entropy on the same tokens: a model
# that is less sure of the answers moves further on them without any harm.
# Measured: `python -m studies.forgetting_warnings` (docs/repair.md).
LIMIT_PER_ENTROPY = 0.09
MIN_ENTROPY = 0.05  # nats per token
FORECAST_FROM, MIN_GROWTH = 0.05, 0.01  # shares of the limit: a smaller KL is no ground for a forecast, or is no growth
FORECAST_STEPS = 5
GROUPS = 4  # of the answers; a spot check is of one group
RISE = 0.07  # of what is left up to the limit, in one group: then a reading is taken
ALPHA = 0.05  # of a certain loss without one, over all times together
NEW_TOKENS, TRIAL_TOKENS = 160, 8


class RowReadings:
    """The clean model's expectations, computed once, so that it need not stay in memory; and readings against them."""

    def __init__(self, model: Student, training: Sequence[Sample], answers: Sequence[Sample], facts: list[Sample]):
        with clean_model(model):
            self.training = Rows.of_clean(model, training)
            self.answers = [Rows.of_clean(model, answers[start::GROUPS]) for start in range(GROUPS)]
            self.facts, self.clean_facts = facts, answer_logprobs(model, facts)
        self.limit = LIMIT_PER_ENTROPY * max(MIN_ENTROPY, self._mean([group.entropy for group in self.answers]))
        self.begin()

    def begin(self) -> None:
        """A training: nothing has been read of it."""
        self.step, self.mean, self.kls = 0, 0.0, [0.0] * len(self.answers)  # in the last reading
        self.spot_checks = 0

    def read(self, model: Student, step: int) -> tuple[dict[str, float], str]:
        """The values, and what they say against the training."""
        values = {}
        with evaluating(model.model):
            if self.training.samples:
                values["kl_training"] = self.training.kl(model)
            self.kls = [group.kl(model) for group in self.answers]
            known = answer_logprobs(model, self.facts) - self.clean_facts
        mean = self._mean(self.kls)
        return values | {"kl_instructions": mean, "kl_limit": self.limit, "known": known}, self.finding(step, mean)

    def finding(self, step: int, mean: float) -> str:
        expected = self._forecast(step, mean)
        self.step, self.mean = step, mean
        if not mean < self.limit:  # also if it is not a number
            return f"{mean:.2g} per token ({self.limit:.2g} is the limit)"
        if expected >= max(self.limit, 2 * mean):  # just below the limit a slow rise is none
            return f"{mean:.2g} per token and will soon pass {self.limit:.2g} (the limit) at this growth"
        return ""

    def has_risen(self, model: Student) -> bool:
        """Whether the KL on the next group of answers has risen since the last reading."""
        number = self.spot_checks % len(self.answers)
        self.spot_checks += 1
        with evaluating(model.model):
            rise = self.answers[number].kl(model) - self.kls[number]
        return not rise < RISE * (self.limit - self.mean)

    def _forecast(self, step: int, mean: float) -> float:
        """The KL a few steps from here, if it goes on growing by the same factor at each step. A first reading is no
        ground for one: an adapter that was trained before differs from the start."""
        if not self.step or step <= self.step or mean < FORECAST_FROM * self.limit:
            return mean
        growth = max(0.0, math.log(mean / max(self.mean, MIN_GROWTH * self.limit)))
        return mean * math.exp(growth * FORECAST_STEPS / (step - self.step))

    def _mean(self, values: Sequence[float]) -> float:
        """Over all targets, from the values of the groups."""
        targets = [group.targets for group in self.answers]
        return math.fsum(value * n for value, n in zip(values, targets, strict=True)) / sum(targets)


@dataclass
class InstructionReadings:
    """Checked instructions, asked again and again: the loss that is certain at all times together."""

    prompts: list[Prompt]
    clean: dict[str, bool] = field(default_factory=dict)  # whether the clean model follows each
    rounds: int = 0

    def read_clean(self, model: Student) -> None:
        with clean_model(model):
            self.clean = _passed(self._answer(model, NEW_TOKENS))

    def read(self, model: Student) -> PairedTest:
        with evaluating(model.model):
            passed = _passed(self._answer(model, NEW_TOKENS))
        self.rounds += 1
        # 1/2 + 1/6 + 1/12 + … is 1: all times together claim a loss without one with the probability ALPHA.
        return paired_test(self.clean, passed, 1 - ALPHA / (self.rounds * (self.rounds + 1)))

    def expected_seconds(self, model: Student) -> float:
        """Measured on the first tokens of the replies, so rather too much than too little."""
        with evaluating(model.model):
            self._answer(model, 1)  # the first call is slower
            started_at = time.monotonic()
            self._answer(model, TRIAL_TOKENS)
        return (time.monotonic() - started_at) * NEW_TOKENS / TRIAL_TOKENS

    def _answer(self, model: Student, max_new_tokens: int) -> list[Item]:
        subject = Subject(TransformersEngine(model), model.chat)
        answers = subject.answer([prompt.text for prompt in self.prompts], max_new_tokens)
        return [judge(prompt, text) for prompt, text in zip(self.prompts, answers, strict=True)]


def _passed(items: list[Item]) -> dict[str, bool]:
    return {item.key: item.passed for item in items}
