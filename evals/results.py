"""The result of a measurement: metrics with confidence intervals, and the items they were computed from."""

import hashlib
import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evals.stats.paired_comparison import ratio_interval, wilson
from recovery.errors import RecoverError

# The four measures that tables and the gate show. The headline of these is one metric of one task:
HEADLINES = {
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
}
# And of these the share of all items that passed, over all tasks whose items pass or fail:
POOLED = ("earlier", "retention")
MEASURES = (*HEADLINES, *POOLED)
LOWER_IS_BETTER = "lower_is_better"  # among the settings of a result whose headline is an error or a perplexity


@dataclass(frozen=True)
class Metric:
    """A number with its sample size, standard error and 95 % confidence interval."""

    value: float
    n: int
    stderr: float
    ci95: tuple[float, float]

    @classmethod
    def from_passes(cls, passes: list[bool]) -> "Metric":
        """A pass rate, with Wilson's interval."""
        n, p = _require_items(passes), sum(passes) / max(len(passes), 1)
        return cls(p, n, math.sqrt(p * (1 - p) / n), wilson(sum(passes), n))

    @classmethod
    def from_groups(cls, groups: list[list[bool]]) -> "Metric":
        """A pass rate over all members of all groups, such as the instructions of prompts.

        Members of one group are correlated, so the groups are the independent samples."""
        groups = [group for group in groups if group]
        k, n, passed = _require_items(groups), sum(map(len, groups)), sum(map(sum, groups))
        p = passed / n
        spread = sum((sum(g) - p * len(g)) ** 2 for g in groups) * k / max(k - 1, 1)
        stderr = math.sqrt(spread) / n
        independent = min(p * (1 - p) / stderr**2, n) if stderr else k
        return cls(p, n, stderr, wilson(p * independent, independent))

    @classmethod
    def from_values(cls, values: list[float]) -> "Metric":
        """A mean. The spread of a single value is unknown and given as NaN (null in JSON)."""
        n, mean = _require_items(values), math.fsum(values) / max(len(values), 1)
        if n == 1:
            return cls(mean, 1, math.nan, (math.nan, math.nan))
        stderr = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
        return cls(mean, n, stderr, (mean - 1.96 * stderr, mean + 1.96 * stderr))

    @classmethod
    def from_ratio(cls, parts: list[float], wholes: list[float]) -> "Metric":
        """Σ parts / Σ wholes, such as bits per byte of passages. Each (part, whole) is one sample."""
        n, ratio = _require_items(parts), math.fsum(parts) / math.fsum(wholes)
        if n == 1:
            return cls(ratio, 1, math.nan, (math.nan, math.nan))
        spread = math.fsum((p - ratio * w) ** 2 for p, w in zip(parts, wholes, strict=True)) * n / (n - 1)
        return cls(ratio, n, math.sqrt(spread) / math.fsum(wholes), ratio_interval(parts, wholes))

    def to_json(self) -> dict[str, Any]:
        low, high = self.ci95
        return {
            "value": finite(self.value),
            "n": self.n,
            "stderr": finite(self.stderr),
            "ci95": [finite(low), finite(high)],
        }


@dataclass(frozen=True)
class Item:
    """One prompt and the model's answer. The key is the same in every evaluation of the data and pairs them."""

    key: str
    prompt: str
    answer: str
    passed: bool
    verdicts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tokens:
    """Tokens that the model read and wrote in a measurement."""

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
    tokens: Tokens | None = None  # None if not counted

    @property
    def id(self) -> tuple[str, str, str]:
        """Of the task and its data: by the content of a file where it is known, since the file may be renamed."""
        return self.suite, self.task, self.settings.get("content") or self.data

    @property
    def headline(self) -> Metric:
        """The task's headline metric; for a task that is not in HEADLINES, its first metric."""
        return self.metrics[self.headline_name]

    @property
    def headline_name(self) -> str:
        name = dict(HEADLINES.values()).get(self.task, "")
        return name if name in self.metrics else next(iter(self.metrics))

    @property
    def is_share(self) -> bool:
        """Whether the headline is a share or another grade: more is better, unlike of bits per byte or perplexity."""
        return not self.settings.get(LOWER_IS_BETTER)

    @property
    def is_pass_rate(self) -> bool:
        """Whether the headline is the share of items that passed, so that two results can be compared item by item.

        With a graded metric (F1, BLEU, bits) hardly any item passes, and a paired test would see no losses."""
        pass_rate = sum(item.passed for item in self.items) / max(len(self.items), 1)
        return self.is_share and math.isclose(pass_rate, self.headline.value, rel_tol=0.0, abs_tol=1e-9)

    @property
    def cost(self) -> dict[str, Any] | None:
        if self.tokens is None:
            return None
        read, written, seconds = self.tokens.read, self.tokens.written, round(self.seconds, 3)
        rate = round((read + written) / seconds, 1) if seconds else None
        return {"tokens_read": read, "tokens_written": written, "tokens_per_second": rate}

    def on(self, keys: Collection[str]) -> "Result":
        """The result on these items alone: the share of them that passed."""
        name, items = next(iter(self.metrics)), [item for item in self.items if item.key in keys]
        return replace(self, items=items, metrics={name: Metric.from_passes([i.passed for i in items])})

    def passed_by_key(self) -> dict[str, bool]:
        return {item.key: item.passed for item in self.items}

    def grades_by_key(self) -> dict[str, float]:
        """What the headline is the mean of: passes, or the items' values of its metric; empty if it is no such mean."""
        if self.is_pass_rate:
            return {key: float(passed) for key, passed in self.passed_by_key().items()}
        grades = {item.key: item.verdicts.get(self.headline_name) for item in self.items}
        numbers = {key: float(grade) for key, grade in grades.items() if isinstance(grade, int | float)}
        mean = math.fsum(numbers.values()) / max(len(numbers), 1)
        return numbers if math.isclose(mean, self.headline.value, abs_tol=1e-6) else {}

    def to_json(self, *, items: bool = False) -> dict[str, Any]:
        row: dict[str, Any] = {
            "task": self.task,
            "suite": self.suite,
            "data": self.data,
            "seconds": round(self.seconds, 3),
            "cost": self.cost,
            "settings": self.settings,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
        }
        return row | {"items": [asdict(item) for item in self.items]} if items else row


def item_key(text: str) -> str:
    """Return the key of an item whose data has no key: a hash of its text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def main_result(results: Iterable[Result], suite: str) -> Result | None:
    """Return the suite's headline task if it was measured, else the suite's first result."""
    in_suite = [result for result in results if result.suite == suite]
    task, _ = HEADLINES.get(suite, ("", ""))
    return next((result for result in in_suite if result.task == task), in_suite[0] if in_suite else None)


def paired_results(before: Iterable[Result], after: Iterable[Result], suite: str) -> list[tuple[Result, Result]]:
    """The results of a suite that both have, in the order of `before`."""
    later = {result.id: result for result in after}
    return [(result, later[result.id]) for result in before if result.suite == suite and result.id in later]


def pooled_passes(results: Iterable[Result]) -> dict[str, bool]:
    """By task, data and key: two tasks may have items of the same key."""
    return {f"{r.task}/{r.data}/{key}": passed for r in results for key, passed in r.passed_by_key().items()}


def headline(results: Iterable[Result], measure: str) -> Metric | None:
    """Return the metric that stands for a measure; None if it was not measured."""
    results = [result for result in results if result.suite == measure]
    judged = [result for result in results if result.is_pass_rate]
    if measure in POOLED and judged:
        return Metric.from_passes([item.passed for result in judged for item in result.items])
    main = main_result(results, measure)
    return main.headline if main else None


def headlines(results: Iterable[Result]) -> dict[str, float | None]:
    """Return the value of each measure; None where no share was measured."""
    shares = [result for result in results if result.is_share]
    metrics = {measure: headline(shares, measure) for measure in MEASURES}
    return {measure: finite(metric.value) if metric else None for measure, metric in metrics.items()}


def _require_items(items: list[Any]) -> int:
    """Return the number of items, which must not be 0."""
    if not items:
        raise RecoverError("There is nothing to measure: the data has no items. Give data with at least one.")
    return len(items)


def finite(value: float) -> float | None:
    """JSON has no NaN and no infinity, so these become None."""
    return value if math.isfinite(value) else None
