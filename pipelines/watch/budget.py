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

    def spent(self, seconds: float, *, is_reading: bool = True) -> None:
        self.spent_seconds += seconds
        if is_reading:
            self.costs.append(seconds)
            self.last_reading = self.steps

    def is_due(self, max_steps: int) -> bool:
        """Whether a reading fits now. The readings that the rest of the training pays for are spread evenly."""
        if self.every and self.steps - self.last_reading < self.every:
            return False
        cost = self.costs[-1] if self.costs else self.expected
        whole = self.training_seconds * max_steps / max(1, self.steps)
        left = self.share * whole - self.spent_seconds
        if left < cost:
            return False
        if self.every or not self.costs:
            return self.steps > 1  # the first step is slower than the others
        spacing = (max_steps - self.last_reading) * cost / left
        return self.steps - self.last_reading >= spacing

    @property
    def taken_share(self) -> float:
        return self.spent_seconds / self.training_seconds if self.training_seconds else 0.0
