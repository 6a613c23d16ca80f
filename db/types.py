"""Column types that mean the same on SQLite and PostgreSQL.

Left alone, the two differ where it hurts: SQLite forgets time zones and turns NaN into NULL, PostgreSQL refuses a
NUL character in text and NaN in JSON. A small model writes NUL characters, and a collapsing one has NaN losses.
"""

import math
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from sqlalchemy import JSON, DateTime, Double, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def now() -> datetime:
    return datetime.now(UTC)


class UtcTime(TypeDecorator[datetime]):
    """A moment. Naive datetimes are refused: nobody could say later which moment they meant."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the record takes times with a zone only, such as datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Number(TypeDecorator[float]):
    """A measured number; NaN is stored as NULL on both databases (infinities are kept)."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or math.isnan(value) else float(value)


def storable(text: str) -> str:
    """The text with what no database takes made visible: NUL becomes ␀, half a surrogate pair becomes �."""
    return text.replace("\x00", "␀").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class AnyText(TypeDecorator[str]):
    """Text from anywhere, a model's mouth included."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, PurePath):
        return storable(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {storable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class PlainJson(TypeDecorator[Any]):
    """JSON as the standard has it: what is no finite number becomes null. Python's None is SQL's NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return _plain(value)
