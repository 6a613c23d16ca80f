"""The clock of the database: several machines compare times by it, since their own clocks may differ."""

from datetime import datetime
from typing import Any

from sqlalchemy import Double, cast
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from db.column_types import UtcTime


class database_time(FunctionElement[datetime]):
    """The database's time, so many seconds from now. PostgreSQL's own now() is the start of the transaction, which may
    have waited for a lock since."""

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
