"""Open the record as an SQLAlchemy engine, or inspect it: SQLite for one machine, PostgreSQL for several."""

import logging
import math
import os
import shutil
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from db import RecordError
from db.migrations import current_version, migrate, newest

LEAST_FREE_BYTES = 2**20  # SQLite needs some even to read
LOCK_TIMEOUT_SECONDS = 30  # how long an SQLite writer waits for another one
# A connection that was cut silently is noticed within half a minute; by default Linux waits a quarter of an hour.
POSTGRES_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,  # milliseconds
}
# So the server notices a client that was lost, and one that hangs in a transaction, and releases what that has locked.
SERVER_OPTIONS = {
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "4",
    "idle_in_transaction_session_timeout": "120s",
}


def open_database(url: str | Path) -> Engine:
    """Open the record at a URL, or at a plain path (SQLite); create it or migrate its tables where needed."""
    address = parse_url(str(url))
    name = display_name(address)
    try:
        if is_sqlite(address) and address.database:
            Path(address.database).parent.mkdir(parents=True, exist_ok=True)
        # Migrations use connections of their own, with foreign keys off: SQLite alters a table by copying and
        # dropping it, and the drop would delete every row that refers to it.
        migrate(make_engine(address, foreign_keys=False, poolclass=NullPool), name)
        engine = make_engine(address, foreign_keys=True)
        if not is_sqlite(address):
            event.listen(engine, "connect", _set_server_options)
        return engine
    except (OSError, SQLAlchemyError) as error:
        advice = "Check that it can be reached and written to, or name another one with RECOVER_DB."
        if is_sqlite(address) and _free_bytes(Path(name).parent) < LEAST_FREE_BYTES:
            advice = "Its disk is full: free a few megabytes there, then `recover gc` can free more."
        raise RecordError(f"Cannot open the record at {name}: {reason(error)}. {advice}") from error


def _free_bytes(folder: Path) -> float:
    return shutil.disk_usage(folder).free if folder.is_dir() else math.inf


@dataclass(frozen=True)
class Health:
    name: str  # the file, or the URL without its password
    server: str  # such as "SQLite 3.45.1"
    version: str | None  # of the tables; None where there is no record yet
    supported: bool  # by this release; False when a newer release wrote it


def health(url: str | Path) -> Health:
    """The state of the record at a URL or path, for `recover doctor`: nothing is created, nothing is migrated.

    A RecordError when it cannot be reached or read."""
    address = parse_url(str(url))
    name = display_name(address)
    if is_sqlite(address) and not Path(name).exists():
        return Health(name, "SQLite", None, True)
    try:
        with make_engine(address, foreign_keys=False, poolclass=NullPool).connect() as connection:
            server = ".".join(map(str, connection.dialect.server_version_info or ()))
            version = current_version(connection)
    except SQLAlchemyError as error:
        raise RecordError(f"Cannot open the record at {name}: {reason(error)}. Check that it can be read.") from error
    server_name = "SQLite" if is_sqlite(address) else "PostgreSQL"
    return Health(name, f"{server_name} {server}", version, version is None or version <= newest())


def _set_server_options(connection: Any, _: object) -> None:
    connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in SERVER_OPTIONS.items()))
    connection.commit()


def write_engine(engine: Engine) -> Engine:
    """The same engine for transactions that write.

    On SQLite they take the write lock at their start. A transaction that reads first and locks later fails at once
    when another process wrote in between, whatever its timeout.
    """
    return engine.execution_options(writes=True)


def insert_into(engine: Engine, table: Any) -> Any:
    """An insert that can have `on_conflict_…`, which SQLAlchemy has for each database apart."""
    return (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(table)


def reason(error: BaseException) -> str:
    """The database's error message in one line, without SQL, parameters or links."""
    original = getattr(error, "orig", None) or error
    return str(original).strip().split("\n")[0].rstrip(".") or type(error).__name__


def parse_url(url: str) -> URL:
    """The address of a record; a RecordError when it is neither a path nor a URL of SQLite or PostgreSQL."""
    if "://" not in url:
        return URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        address = make_url(url)
    except (ArgumentError, ValueError) as error:  # such as a port that is no number
        raise RecordError(
            "The record's address is not a URL. Write sqlite:///FILE or postgresql://HOST/NAME."
        ) from error
    backend = address.drivername.split("+")[0]
    if backend in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise RecordError(f"The record needs SQLite or PostgreSQL, not {backend!r}. Name one of these with RECOVER_DB.")
    if address.database in (None, "", ":memory:"):
        raise RecordError(
            "The record needs a file, as several processes share it. Write, for example, sqlite:///record.db."
        )
    return address


def is_sqlite(address: URL) -> bool:
    return address.get_backend_name() == "sqlite"


def display_name(address: URL) -> str:
    """The address for messages: a file's path, or a URL without its passwords."""
    if is_sqlite(address):
        return str(address.database)
    hidden = {name: "***" for name in address.query if "password" in name}
    return address.update_query_dict(hidden).render_as_string(hide_password=True)


def make_engine(address: URL, foreign_keys: bool, **options: Any) -> Engine:
    """An engine without migrations; on SQLite with write-ahead logging and explicit transactions."""
    if not is_sqlite(address):
        # The driver also logs every pipeline that an error ends; the error itself is reported once, by our messages.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        try:
            return create_engine(address, pool_pre_ping=True, connect_args=POSTGRES_OPTIONS, **options)
        except ModuleNotFoundError as error:
            raise RecordError("PostgreSQL needs its driver. Install recover's extra `postgres`.") from error
    file = Path(str(address.database))
    if file.is_file() and not os.access(file.parent, os.W_OK):
        options |= {"creator": partial(_read, file), "poolclass": NullPool}
    engine = create_engine(address, **options)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # otherwise the driver opens transactions itself, and never immediate ones
        connection.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_SECONDS * 1000}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _read(file: Path) -> sqlite3.Connection:
    """A connection to a file in a folder that may not be written to, where SQLite cannot create its log. Where another
    user has it open, the log is there; else the file is read as one that does not change."""
    unchanging = "" if file.with_name(f"{file.name}-wal").exists() else "?immutable=1"
    return sqlite3.connect(f"{file.absolute().as_uri()}{unchanging}", uri=True)
