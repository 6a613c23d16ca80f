"""When the next reading is due, so that all readings together stay within a share of the training's time."""

from dataclasses import dataclass, field


@dataclass
class Budget:
    """Seconds of training and of readings. A reading is expected to cost what the last one did."""

    share: float  # of the training's time that readings may take
    every: int | None = None  # steps between two readings; None: as often as the budget allows
    training_seconds: float = 0.0
    spent_seconds: float = 0.0
    steps: int = 0
    last_reading: int = 0  # the step of it
    expected: float = 0.0  # seconds of the first reading
    costs: list[float] = field(default_factory=list)

    def stepped(self, seconds: float) -> None:
        self.training_seconds += seconds
        self.steps += 1

    def spent(self, seconds: float, *, is_reading: bool = True, parts: int = 1) -> None:
        """A reading of several parts is several readings at one step."""
        self.spent_seconds += seconds
        if is_reading:
            self.costs.append(seconds / parts)
            self.last_reading = self.steps

    def is_due(self, max_steps: int) -> bool:
        """Whether a reading fits now. The readings that the rest of the training pays for are spread evenly."""
        if self.every and self.steps - self.last_reading < self.every:
            return False
        if not self.affords(max_steps):
            return False
        if self.every or not self.costs:
            return self.steps > 1  # the first step is slower than the others
        spacing = (max_steps - self.last_reading) * self._cost / self._left(max_steps)
        return self.steps - self.last_reading >= spacing

    def affords(self, max_steps: int) -> bool:
        """Whether one more reading stays within the share."""
        return self._left(max_steps) > self._cost

    def fit_in_a_step(self, max_steps: int) -> int:
        """How many readings the rest of the training pays for at each of its steps; at least one."""
        return max(1, int(self._left(max_steps) / max(self._cost * (max_steps - self.steps), 1e-9)))

    def give(self, other: "Budget", part: float, training_seconds: float) -> None:
        """Give another budget so much of what is left of the share."""
        given = part * max(0.0, self.share - self.spent_seconds / training_seconds)
        self.share, other.share = self.share - given, other.share + given

    @property
    def _cost(self) -> float:
        return self.costs[-1] if self.costs else self.expected

    def _left(self, max_steps: int) -> float:
        whole = self.training_seconds * max_steps / max(1, self.steps)
        return self.share * whole - self.spent_seconds

    @property
    def taken_share(self) -> float:
        return self.spent_seconds / self.training_seconds if self.training_seconds else 0.0
