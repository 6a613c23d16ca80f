"""Times and sizes as text."""

from datetime import datetime, timedelta

from db.column_types import now

STAGE_NAMES = {"midtrain": "Mid-training", "distill": "Distillation", "eval": "Evaluation"}  # by kind of run


def clock(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def ago(at: datetime) -> str:
    return f"{duration(max(now() - at, timedelta()))} ago"


def duration(time: timedelta) -> str:
    """`3 min 12 s`: the two largest units."""
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
