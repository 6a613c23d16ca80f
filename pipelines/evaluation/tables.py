"""Scores, and what they cost, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.results import Result

SUITES = ("behaviour", "knowledge", "retention")


def scores_table(rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    widest = max(len(name) for name in rows)
    lines = [" " * widest + "".join(f"{suite:>12}" for suite in SUITES)]
    for name, scores in rows.items():
        cells = [scores.get(suite) for suite in SUITES]
        lines.append(f"{name:<{widest}}" + "".join(f"{'-' if c is None else f'{c:.3f}':>12}" for c in cells))
    return lines


def cost_in_words(seconds: float, cost: Mapping[str, Any] | None) -> str:
    if not cost:
        return f"{seconds:.1f} s"
    read, written, rate = (cost[name] for name in ("tokens_read", "tokens_written", "tokens_per_second"))
    return f"{seconds:.1f} s: {read:,} tokens read, {written:,} written" + (f", {rate:,.0f} a second" if rate else "")


def drift_table(one: str, other: str, first: Sequence[Result], second: Sequence[Result]) -> list[str]:
    """Metric by metric, how far both are from the clean base."""
    lines = [f"{'from the clean base':<28}{one[-22:]:>24}{other[-22:]:>24}"]
    for a, b in zip(first, second, strict=True):
        lines.append(f"{a.task} ({a.data}, {len(a.items)} items)")
        lines += [f"  {name:<26}{m.value:>24.4f}{b.metrics[name].value:>24.4f}" for name, m in a.metrics.items()]
    return lines
