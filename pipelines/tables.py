"""Scores as a small table of text."""

from collections.abc import Mapping

SUITES = ("behaviour", "knowledge", "retention")


def scores_table(rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    widest = max(len(name) for name in rows)
    lines = [" " * widest + "".join(f"{suite:>12}" for suite in SUITES)]
    for name, scores in rows.items():
        cells = [scores.get(suite) for suite in SUITES]
        lines.append(f"{name:<{widest}}" + "".join(f"{'-' if c is None else f'{c:.3f}':>12}" for c in cells))
    return lines
