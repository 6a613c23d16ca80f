"""Run and write migrations through Alembic, configured here instead of in an alembic.ini."""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, text

from db import RecordError
from db.migrations import current_version, newest

_LOCK = 0x7265636F766572  # "recover": any number, the same in every process


def bring_up_to_date(engine: Engine, name: str) -> None:
    """Run all missing migrations in one transaction; processes that open the record meanwhile wait for it."""
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        version = current_version(connection)
        if version is not None and version > newest():
            raise RecordError(
                f"The record at {name} was written by a newer release of recover (its version is {version}). "
                "Upgrade recover, or name another record with RECOVER_DB."
            )
        command.upgrade(config(connection), "head")


def config(connection: Connection | None = None) -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    settings.attributes["connection"] = connection
    return settings


def write_migration(message: str) -> None:
    """Write the next migration from the changes in `db/tables.py`. Read it before you commit it."""
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/record.db")
        bring_up_to_date(engine, folder)
        with engine.begin() as connection:
            number = f"{int(newest()) + 1:04d}"
            command.revision(config(connection), message=message, autogenerate=True, rev_id=number)
        engine.dispose()


if __name__ == "__main__":
    write_migration(" ".join(sys.argv[1:]) or "change")
