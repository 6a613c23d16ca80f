"""Opening the record: SQLite for one machine, PostgreSQL for several."""

import logging
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from db.errors import RecordError
from db.migrations import migrate

PATIENCE_SECONDS = 30
"""How long a writer waits for another before it gives up."""


def open_database(url: str | Path) -> Engine:
    """The record at an URL (or a plain path, which means SQLite), created or brought up to date as needed."""
    address = address_of(str(url))
    shown = address.database if is_sqlite(address) else address.render_as_string(hide_password=True)
    try:
        if is_sqlite(address) and address.database:
            Path(address.database).parent.mkdir(parents=True, exist_ok=True)
        # The migration has connections of its own, with foreign keys off: SQLite alters a table by copying and
        # dropping it, and the drop would take along every row that refers to it.
        alterations = engine_at(address, foreign_keys=False, poolclass=NullPool)
        migrate(alterations, str(shown))
        return engine_at(address, foreign_keys=True)
    except (OSError, SQLAlchemyError) as error:
        advice = "Check that it can be reached and written to, or name another with RECOVER_DB."
        raise RecordError(f"Cannot open the record at {shown}: {reason(error)}. {advice}") from error


def writing(engine: Engine) -> Engine:
    """The same engine for transactions that will write.

    On SQLite they take the write lock at once: one that reads first and asks for the lock later is refused when
    another process wrote in between, however long it is willing to wait.
    """
    return engine.execution_options(writes=True)


def reason(error: BaseException) -> str:
    """What went wrong, in the database's own words and one line: without SQL, parameters or links."""
    original = getattr(error, "orig", None) or error
    return str(original).strip().split("\n")[0].rstrip(".") or type(error).__name__


def address_of(url: str) -> URL:
    if "://" not in url:
        return URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise RecordError(
            "The record's address is not an URL; write sqlite:///file or postgresql://host/name."
        ) from error
    backend = address.drivername.split("+")[0]
    if backend in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise RecordError(
            f"The record lives in SQLite or PostgreSQL, not in {backend!r}; name one of these with RECOVER_DB."
        )
    if address.database in (None, "", ":memory:"):
        raise RecordError("The record needs a file, as several threads and processes share it: sqlite:///record.db.")
    return address


def is_sqlite(address: URL) -> bool:
    return address.get_backend_name() == "sqlite"


def engine_at(address: URL, foreign_keys: bool, **options: Any) -> Engine:
    if not is_sqlite(address):
        # The driver warns of every pipeline that a failure ends; the failure itself is told in our own words, once.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        try:
            return create_engine(address, pool_pre_ping=True, connect_args={"connect_timeout": 10}, **options)
        except ModuleNotFoundError as error:
            raise RecordError("PostgreSQL needs its driver: pip install 'recover[postgres]'.") from error
    engine = create_engine(address, **options)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # else the driver opens transactions by itself, and never immediate ones
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE_SECONDS * 1000}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
