"""Scores and costs as lines of text."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from db.headline_scores import MEASURES
from db.verdict_lines import measure_lines

if TYPE_CHECKING:  # imports numpy
    from evals.results import Result

COLUMN = 13  # characters


def scores_table(rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """The measures of each row, below their names, but for those that no row has."""
    width = max(len(name) for name in rows)
    measures = [measure for measure in MEASURES if any(scores.get(measure) is not None for scores in rows.values())]
    names = [wrap(MEASURES[measure], COLUMN - 2) for measure in measures]
    lines = [" " * width + "".join(f"{name[line]:>{COLUMN}}" for name in names) for line in range(2)]
    for name, scores in rows.items():
        cells = [scores.get(measure) for measure in measures]
        lines.append(f"{name:<{width}}" + "".join(f"{'-' if c is None else f'{c:.3f}':>{COLUMN}}" for c in cells))
    return lines


def verdict_table(verdict: Mapping[str, Any], names: tuple[str, str] = ("clean", "now")) -> list[str]:
    """One line a measure, then what was lost and gained; `names` are those of the two models."""
    measures = measure_lines(verdict)
    width = max((len(measured.name) for measured in measures), default=0) + 2
    header = f"{'':<{width}}{names[0]:>7}   {names[1]:<7}{'with 95 %':>12}{'limit':>9}"
    lines = [header]
    for measured in measures:
        if measured.is_judged:
            bound = f"≥ {measured.bound}" if measured.bound else ""
            scores = f"{measured.before or '-':>7} → {measured.after:<7}{bound:>12}{measured.limit:>9}"
            lines.append(f"{measured.name:<{width}}{scores}  {measured.word}")
        else:
            lines.append(f"{measured.name:<{width}}{measured.word:>7}")
    for measured in measures:
        if measured.details:
            lines += [f"{MEASURES[measured.measure]}:", *(f"  {detail}" for detail in measured.details)]
    return lines


def describe_cost(seconds: float, cost: Mapping[str, Any] | None) -> str:
    """Seconds, and tokens where they were counted."""
    if not cost:
        return f"{seconds:.1f} s"
    read, written, rate = (cost[name] for name in ("tokens_read", "tokens_written", "tokens_per_second"))
    return f"{seconds:.1f} s: {read:,} tokens read, {written:,} written" + (f", {rate:,.0f} per second" if rate else "")


def drift_table(names: tuple[str, str], first: "Sequence[Result]", second: "Sequence[Result]") -> list[str]:
    """The drift of two checkpoints from the clean model, metric by metric."""
    lines = [f"{'from the clean model':<28}" + "".join(f"{name[-22:]:>24}" for name in names)]
    for a, b in zip(first, second, strict=True):
        lines.append(f"{a.task} ({a.data}, {len(a.items)} items)")
        lines += [f"  {name:<26}{m.value:>24.4f}{b.metrics[name].value:>24.4f}" for name, m in a.metrics.items()]
    return lines
