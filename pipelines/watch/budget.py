"""When the next reading is due, so that all readings together stay within a share of the training's time."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["rows", "spot_checks", "instructions"]
# Of what is left of the budget, what the readings of each kind are spread over.
PARTS: dict[Kind, float] = {"rows": 0.4, "spot_checks": 0.3, "instructions": 0.3}


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

    def expected_training_seconds(self, max_steps: int) -> float:
        later = self.training_seconds - self.first_step_seconds
        return self.first_step_seconds + later * (max_steps - 1) / max(1, self.steps - 1)

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
        reserved = 0.0 if kind == "rows" else self.costs["rows"]  # for when something has risen, or for the end
        return self.share * self.expected_training_seconds(max_steps) - self.spent_seconds - reserved

    @property
    def taken_share(self) -> float:
        return self.spent_seconds / self.training_seconds if self.training_seconds else 0.0
