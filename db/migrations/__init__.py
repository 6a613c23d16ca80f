"""Migrate a database to the tables of this release.

To write a migration after changing `db/tables.py`:  python -m db.migrations.steps "what changes"
"""

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

VERSION_TABLE = "recover_version"


def migrate(engine: Engine, name: str) -> None:
    """Bring the database up to date; a RecordError when a newer release wrote it.

    Alembic is imported only when there is something to do: it takes two fifths of a command's import time.
    """
    try:
        with engine.connect() as connection:
            version = current_version(connection)
    except DBAPIError:
        version = None  # the migration waits for the lock of another process, or reports what is wrong
    if version != newest():
        from db.migrations.steps import bring_up_to_date

        bring_up_to_date(engine, name)


def newest() -> str:
    """The version of this release's tables, from the migrations' file names."""
    files = (Path(__file__).parent / "versions").glob("[0-9]*_*.py")
    return max((file.name.partition("_")[0] for file in files), default="0000")


def current_version(connection: Connection) -> str | None:
    """The version of a database's tables; None where it has none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
