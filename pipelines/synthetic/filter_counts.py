"""What a model wrote about passages: how much of it was kept, and what spoke against the rest."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Tally:
    passages: int = 0
    written: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.passages += other.passages
        self.written += other.written
        self.kept += other.kept
        self.dropped.update(other.dropped)

    def reasons(self, most: int | None = None) -> list[str]:
        return [f"{times} {reason}" for reason, times in self.dropped.most_common(most)]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"dropped": dict(self.dropped)}
