"""Scores and costs as lines of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.results import Result

SUITES = ("behaviour", "knowledge", "retention")


def scores_table(rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    width = max(len(name) for name in rows)
    lines = [" " * width + "".join(f"{suite:>12}" for suite in SUITES)]
    for name, scores in rows.items():
        cells = [scores.get(suite) for suite in SUITES]
        lines.append(f"{name:<{width}}" + "".join(f"{'-' if c is None else f'{c:.3f}':>12}" for c in cells))
    return lines


def describe_cost(seconds: float, cost: Mapping[str, Any] | None) -> str:
    """Seconds, and tokens where they were counted."""
    if not cost:
        return f"{seconds:.1f} s"
    read, written, rate = (cost[name] for name in ("tokens_read", "tokens_written", "tokens_per_second"))
    return f"{seconds:.1f} s: {read:,} tokens read, {written:,} written" + (f", {rate:,.0f} per second" if rate else "")


def drift_table(names: tuple[str, str], first: Sequence[Result], second: Sequence[Result]) -> list[str]:
    """The drift of two checkpoints from the clean model, metric by metric."""
    lines = [f"{'from the clean model':<28}" + "".join(f"{name[-22:]:>24}" for name in names)]
    for a, b in zip(first, second, strict=True):
        lines.append(f"{a.task} ({a.data}, {len(a.items)} items)")
        lines += [f"  {name:<26}{m.value:>24.4f}{b.metrics[name].value:>24.4f}" for name, m in a.metrics.items()]
    return lines
