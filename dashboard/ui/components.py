"""The pieces pages are built from: tables, badges, forms, numbers in words."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dashboard.ui.layout import plain
from db.queries import STALE_AFTER
from db.types import now
from db.views import Run, Score

ICONS = {"promoted": "✓", "rejected": "✕", "inconclusive": "?", "done": "✓", "failed": "✕", "interrupted": "◼"}
TICKS = {True: ("yes", "✓", "passed"), False: ("no", "✕", "failed"), None: ("unsure", "?", "undecided")}
DOING = {"midtrain": "Mid-training", "distill": "Distillation", "eval": "Measuring"}
NOTHING = '<span class="nothing">–</span>'


class Cell(NamedTuple):
    """HTML for a cell, how it is to be set, and what it is worth in a saved table where that is not what it shows."""

    content: str
    css: str = ""
    value: object = None


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell | str]], save: str = "") -> str:
    """Columns are words, cells are HTML; the first cell names its row. On a phone each row is a card."""
    body = "".join(_row(columns, [c if isinstance(c, Cell) else Cell(c) for c in row]) for row in rows)
    headings = "".join(f'<th scope="col">{column}</th>' for column in columns)
    inside = f"<caption>{caption}</caption><thead><tr>{headings}</tr></thead><tbody>{body}</tbody>"
    return f'{save_buttons(save, "csv") if save else ""}<table class="rows">{inside}</table>'


def save_buttons(name: str, *formats: str, of: str = "") -> str:
    """They save the table or the chart of their own card, or what `of` selects on the page."""
    words = {"csv": "Save this table as CSV", "png": "Save this chart as PNG", "svg": "Save this chart as SVG"}
    buttons = "".join(
        f'<button type="button" data-save="{one}" data-name="{plain(name)}" data-of="{of}" aria-label="{words[one]}" '
        f'title="{words[one]}">{one.upper()}</button>'
        for one in formats
    )
    return f'<span class="save">{buttons}</span>'


def card(title: str, content: str, note: str = "", css: str = "") -> str:
    beside = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="card {css}"><h2>{title}</h2>{beside}{content}</section>'


def badge(status: str) -> str:
    icon = f'<span aria-hidden="true">{ICONS.get(status, "●")}</span>'
    return f'<span class="badge {status}">{icon}{status.capitalize()}</span>'


def tick(passed: bool | None, words: str = "") -> str:
    css, sign, said = TICKS[passed]
    return f'<span class="tick {css}"><span aria-hidden="true">{sign}</span> {words or said}</span>'


def number(score: Score | None, interval: bool = True) -> Cell:
    if score is None or score.value is None:
        return Cell(NOTHING, "number", "")
    bounds = ""
    if interval and score.low is not None and score.high is not None:
        bounds = f' <span class="interval">{score.low:.3f}–{score.high:.3f}</span>'
    return Cell(f"{score.value:.3f}{bounds}", "number", score.value)


def change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    return f'<span class="change">{after - before:+.3f}</span>'.replace("-", "−")


def form(fields: str, button: str = "Show", hidden: Mapping[str, object] | None = None) -> str:
    """Questions to a page. They go into its address, so that what it answers can be sent to a colleague."""
    kept = "".join(f'<input type="hidden" name="{n}" value="{plain(str(v))}">' for n, v in (hidden or {}).items())
    return f'<form method="get" class="asking">{kept}{fields}<button type="submit">{button}</button></form>'


def choice(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> str:
    inside = "".join(
        f'<option value="{plain(value)}"{" selected" if value == chosen else ""}>{plain(words)}</option>'
        for value, words in options
    )
    return f'<label>{label}<select name="{name}" aria-label="{label}">{inside}</select></label>'


def words(name: str, label: str, value: str) -> str:
    return (
        f'<label>{label}<input type="search" name="{name}" aria-label="{label}" value="{plain(value[:200])}"></label>'
    )


def clock(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def ago(at: datetime) -> str:
    return f"{duration(max(datetime.now(UTC) - at, timedelta()))} ago"


def stale(run: Run) -> bool:
    """Whether a run that is said to go on has not been heard of for too long."""
    return now() - run.heartbeat_at > STALE_AFTER


def duration(time: timedelta) -> str:
    """`3 min 12 s`: the two units that matter."""
    seconds = round(time.total_seconds())
    if seconds == 0 and time:
        return "under 1 s"
    units = [("d", 86400), ("h", 3600), ("min", 60), ("s", 1)]
    parts: list[str] = []
    for name, size in units:
        if seconds >= size or (name == "s" and not parts):
            parts.append(f"{seconds // size} {name}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:2])


def size(count: float | None) -> str:
    """`9.4 MB`"""
    if count is None:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _row(columns: Sequence[str], cells: Sequence[Cell]) -> str:
    first, *rest = cells
    inside = "".join(
        f'<td data-label="{column}" class="{cell.css}"{_worth(cell)}><span>{cell.content}</span></td>'
        for column, cell in zip(columns[1:], rest, strict=True)
    )
    return f'<tr><th scope="row" class="{first.css}"{_worth(first)}>{first.content}</th>{inside}</tr>'


def _worth(cell: Cell) -> str:
    return "" if cell.value is None else f' data-value="{plain(str(cell.value))}"'
