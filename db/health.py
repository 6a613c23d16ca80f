"""How a record is, found by looking alone: nothing is created and nothing is migrated."""

from dataclasses import dataclass
from pathlib import Path

from alembic.script import ScriptDirectory
from sqlalchemy import NullPool
from sqlalchemy.exc import SQLAlchemyError

from db.engine import address_of, engine_at, is_sqlite, reason
from db.errors import RecordError
from db.migrations.steps import config, current_version


@dataclass(frozen=True)
class Health:
    where: str  # without its password
    server: str
    version: str | None  # of its tables; None where there is no record yet
    known: bool  # to this release, which can bring it up to date


def health(url: str | Path) -> Health:
    """A record that cannot be reached or read is a RecordError that says why."""
    address = address_of(str(url))
    where = str(address.database if is_sqlite(address) else address.render_as_string(hide_password=True))
    if is_sqlite(address) and not Path(where).exists():
        return Health(where, "SQLite", None, True)
    try:
        with engine_at(address, foreign_keys=False, poolclass=NullPool).connect() as connection:
            server = ".".join(map(str, connection.dialect.server_version_info or ()))
            version = current_version(connection)
    except SQLAlchemyError as error:
        raise RecordError(f"Cannot open the record at {where}: {reason(error)}.") from error
    revisions = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    name = "SQLite" if is_sqlite(address) else "PostgreSQL"
    return Health(where, f"{name} {server}", version, version is None or version in revisions)
