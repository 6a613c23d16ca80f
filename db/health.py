"""Inspect a record without changing it: nothing is created, nothing is migrated. `recover doctor` shows the result."""

from dataclasses import dataclass
from pathlib import Path

from alembic.script import ScriptDirectory
from sqlalchemy import NullPool
from sqlalchemy.exc import SQLAlchemyError

from db.engine import display_name, is_sqlite, make_engine, parse_url, reason
from db.errors import RecordError
from db.migrations.steps import config, current_version


@dataclass(frozen=True)
class Health:
    name: str  # the file, or the URL without its password
    server: str  # such as "SQLite 3.45.1"
    version: str | None  # of the tables; None where there is no record yet
    supported: bool  # by this release; False when a newer release wrote it


def health(url: str | Path) -> Health:
    """The state of the record at a URL or path; a RecordError when it cannot be reached or read."""
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
    revisions = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    server_name = "SQLite" if is_sqlite(address) else "PostgreSQL"
    return Health(name, f"{server_name} {server}", version, version is None or version in revisions)
