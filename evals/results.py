"""What a measurement is: numbers that carry their uncertainty, and the items they were counted on."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from evals.stats.bootstrap import ratio_interval
from evals.stats.paired_tests import wilson
from recovery.errors import RecoverError

# The one number of each suite that tables, charts and the gate show.
HEADLINES = {
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
    "retention": ("arithmetic", "match"),
}


@dataclass(frozen=True)
class Metric:
    value: float
    n: int
    stderr: float
    ci95: tuple[float, float]

    @classmethod
    def of_passes(cls, passes: list[bool]) -> "Metric":
        n, p = _counted(passes), sum(passes) / max(len(passes), 1)
        return cls(p, n, math.sqrt(p * (1 - p) / n), wilson(sum(passes), n))

    @classmethod
    def of_groups(cls, groups: list[list[bool]]) -> "Metric":
        """A proportion over all members of all groups, such as instructions of prompts.

        Members of one group pass or fail together, so the groups are what counts as independent."""
        groups = [group for group in groups if group]
        k, n, passed = _counted(groups), sum(map(len, groups)), sum(map(sum, groups))
        p = passed / n
        spread = sum((sum(g) - p * len(g)) ** 2 for g in groups) * k / max(k - 1, 1)
        stderr = math.sqrt(spread) / n
        independent = min(p * (1 - p) / stderr**2, n) if stderr else k
        return cls(p, n, stderr, wilson(p * independent, independent))

    @classmethod
    def of_values(cls, values: list[float]) -> "Metric":
        """A mean; from one value nothing is known of its spread, which is said with NaN (null in JSON)."""
        n, mean = _counted(values), math.fsum(values) / max(len(values), 1)
        if n == 1:
            return cls(mean, 1, math.nan, (math.nan, math.nan))
        stderr = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
        return cls(mean, n, stderr, (mean - 1.96 * stderr, mean + 1.96 * stderr))

    @classmethod
    def of_ratio(cls, parts: list[float], wholes: list[float]) -> "Metric":
        """Σ parts / Σ wholes, such as the bits of passages over their bytes; a (part, whole) is one sample."""
        n, ratio = _counted(parts), math.fsum(parts) / math.fsum(wholes)
        if n == 1:
            return cls(ratio, 1, math.nan, (math.nan, math.nan))
        spread = math.fsum((p - ratio * w) ** 2 for p, w in zip(parts, wholes, strict=True)) * n / (n - 1)
        return cls(ratio, n, math.sqrt(spread) / math.fsum(wholes), ratio_interval(parts, wholes))

    def to_json(self) -> dict[str, Any]:
        low, high = self.ci95
        return {
            "value": _finite(self.value),
            "n": self.n,
            "stderr": _finite(self.stderr),
            "ci95": [_finite(low), _finite(high)],
        }


@dataclass(frozen=True)
class Item:
    """One question put to the model. Its key is the same in every evaluation of the same data: it pairs them."""

    key: str
    prompt: str
    answer: str
    passed: bool
    verdicts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tokens:
    """What a measurement gave the model to read, and what it had it write."""

    read: int
    written: int


@dataclass(frozen=True)
class Result:
    task: str
    suite: str
    data: str  # which items: "lab", "public", or the user's file
    metrics: dict[str, Metric]
    items: list[Item]
    settings: dict[str, Any]
    seconds: float
    tokens: Tokens | None = None  # None where nobody counted

    @property
    def headline(self) -> Metric:
        """The number that stands for this result; the first one for a task that names none."""
        named = dict(HEADLINES.values()).get(self.task, "")
        return self.metrics.get(named) or next(iter(self.metrics.values()))

    @property
    def is_share(self) -> bool:
        """Of things done right: the more the better, and at most all. Bits are neither."""
        return "bits_per_byte" not in self.metrics

    @property
    def counts_passes(self) -> bool:
        """Whether its number is the share of items that passed, so that these may be held against another's, one by
        one; of a graded measure (F1, BLEU, bits) hardly any item passes, and none would ever seem lost."""
        passed = sum(item.passed for item in self.items) / max(len(self.items), 1)
        return math.isclose(passed, self.headline.value, rel_tol=0.0, abs_tol=1e-9)

    @property
    def cost(self) -> dict[str, Any] | None:
        if self.tokens is None:
            return None
        read, written, seconds = self.tokens.read, self.tokens.written, round(self.seconds, 3)
        rate = round((read + written) / seconds, 1) if seconds else None
        return {"tokens_read": read, "tokens_written": written, "tokens_per_second": rate}

    def passed_by_key(self) -> dict[str, bool]:
        return {item.key: item.passed for item in self.items}

    def to_json(self, *, items: bool = False) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "task": self.task,
            "suite": self.suite,
            "data": self.data,
            "seconds": round(self.seconds, 3),
            "cost": self.cost,
            "settings": self.settings,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
        }
        return shown | {"items": [asdict(item) for item in self.items]} if items else shown


def key_of(text: str) -> str:
    """A key for an item whose data names none: the same text has the same key, wherever it stands in its file."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def main_result(results: Iterable[Result], suite: str) -> Result | None:
    """The result that speaks for a suite: its headline task where measured, else its first."""
    of_suite = [result for result in results if result.suite == suite]
    task, _ = HEADLINES.get(suite, ("", ""))
    return next((result for result in of_suite if result.task == task), of_suite[0] if of_suite else None)


def headlines(results: Iterable[Result]) -> dict[str, float | None]:
    """`{"behaviour": …, "knowledge": …, "retention": …}`, None where no share was measured."""
    results = list(results)
    mains = {suite: main_result(results, suite) for suite in HEADLINES}
    return {suite: _finite(main.headline.value) if main and main.is_share else None for suite, main in mains.items()}


def _counted(items: list[Any]) -> int:
    if not items:
        raise RecoverError("there is nothing to measure: the data holds no items")
    return len(items)


def _finite(value: float) -> float | None:
    """JSON knows no NaN and no infinity."""
    return value if math.isfinite(value) else None
