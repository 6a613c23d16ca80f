"""When a loss of instruction following is likely, by the KL of the clean model to this one on its own replies.

At a high learning rate a model loses it within a few steps, between two readings. So a few replies are looked at after
nearly every step; if the KL on one has risen, a reading of all of them is taken at once. Since the KL of such a
training grows by a factor at each step, a reading also tells where it will be soon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.watch.probe_rows import Rows, WatchedModel, evaluating

# KL per token at which a loss of three points is likely, and from which on a forecast is made.
# Measured: `python -m benchmarks.quality.forgetting_warnings` (docs/repair.md).
LIMIT, LEAST = 0.0075, 0.001
NOTHING = 0.00003  # what is less than this does not count as growth
STEPS_AHEAD = 5
RISE = 0.1  # of what is left up to the limit, on one reply
MOST_LOOKS = 3  # after a step


@dataclass
class EarlyWarning:
    replies: Sequence[Rows]
    looks: int = 0  # at single replies
    last_step: int = 0
    last_mean: float = 0.0
    last_kls: list[float] = field(default_factory=list)  # by reply; none before the first reading

    def has_risen(self, model: WatchedModel, looks: int = 1) -> bool:
        """Whether the KL on one of the next replies has risen since the last reading."""
        numbers = [(self.looks + i) % len(self.replies) for i in range(looks)]
        self.looks += looks
        with evaluating(model.model):
            rises = [self.replies[n].kl(model) - (self.last_kls[n] if self.last_kls else 0.0) for n in numbers]
        return max(rises) >= RISE * (LIMIT - self.last_mean)

    def read(self, step: int, mean: float, kls: list[float]) -> str:
        """What a reading says against the training; empty if nothing."""
        expected = self._forecast(step, mean)
        self.last_step, self.last_mean, self.last_kls = step, mean, kls
        if mean >= LIMIT:
            return f"{mean:.2g} per token ({LIMIT:g} is the limit)"
        if expected >= max(LIMIT, 2 * mean):  # just below the limit a slow rise is none
            return f"{mean:.2g} per token and grows so fast that it passes the limit of {LIMIT:g} within a few steps"
        return ""

    def _forecast(self, step: int, mean: float) -> float:
        """The KL a few steps from here, if it goes on growing by the same factor at each step."""
        if mean < LEAST or step <= self.last_step:
            return mean
        growth = max(0.0, math.log(mean / max(self.last_mean, NOTHING)))
        return mean * math.exp(growth * STEPS_AHEAD / (step - self.last_step))
