"""Scores, and what they cost, as text."""

from collections.abc import Mapping
from typing import Any

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
