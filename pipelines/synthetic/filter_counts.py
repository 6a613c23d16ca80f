"""How much of what a model wrote about passages passed the filters, and why the rest was dropped."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class FilterCounts:
    passages: int = 0
    written: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason

    def add(self, other: "FilterCounts") -> None:
        self.passages += other.passages
        self.written += other.written
        self.kept += other.kept
        self.dropped.update(other.dropped)

    def reasons(self, count: int | None = None) -> list[str]:
        """The most frequent reasons with their counts."""
        return [f"{times} {reason}" for reason, times in self.dropped.most_common(count)]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"dropped": dict(self.dropped)}
