"""Column types that mean the same on SQLite and PostgreSQL, and the database's own clock.

By default the two differ: SQLite drops time zones and turns NaN into NULL; PostgreSQL refuses a NUL character in text
and NaN in JSON. Both occur: small models write NUL characters, and diverging ones have NaN losses.
"""

import math
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from sqlalchemy import JSON, DateTime, Double, Text, cast
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


def now() -> datetime:
    return datetime.now(UTC)


class UtcTime(TypeDecorator[datetime]):
    """A datetime with a time zone, stored in UTC. Naive datetimes are refused, as they are ambiguous."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("The record stores only times with a time zone, such as datetime.now(UTC).")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Number(TypeDecorator[float]):
    """A float; NaN is stored as NULL on both databases, infinities stay."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or math.isnan(value) else float(value)


def storable(text: str) -> str:
    """Replace the characters that a database refuses: NUL becomes ␀, a lone surrogate becomes �."""
    return text.replace("\x00", "␀").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class AnyText(TypeDecorator[str]):
    """Any text, including model output; see `storable`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


def plain_json(value: Any) -> Any:
    """A value as the record gives it back."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, PurePath):
        return storable(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {storable(str(key)): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return value


class PlainJson(TypeDecorator[Any]):
    """Standard JSON: numbers that are not finite become null. Python's None becomes SQL's NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return plain_json(value)


class database_time(FunctionElement[datetime]):
    """The database's time, so many seconds from now: several machines compare times by it, as their clocks may differ.

    PostgreSQL's own now() is the start of the transaction, which may have waited for a lock since."""

    type = UtcTime()
    inherit_cache = True

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(cast(seconds, Double))


@compiles(database_time, "postgresql")
def _postgresql(element: database_time, compiler: Any, **options: Any) -> str:
    return f"(clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **options)}))"


@compiles(database_time, "sqlite")
def _sqlite(element: database_time, compiler: Any, **options: Any) -> str:
    """As text with microseconds, as SQLAlchemy stores a time there."""
    seconds = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {seconds} || ' seconds')"
