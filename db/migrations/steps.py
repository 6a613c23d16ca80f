"""Alembic's part: the steps from one version's tables to the next. No alembic.ini is needed."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from db.errors import RecordError
from db.migrations import VERSION_TABLE

_LOCK = 0x7265636F766572  # any number will do, as long as every process takes the same: "recover"


def bring_up_to_date(engine: Engine, name: str) -> None:
    """All or nothing. Of several processes that open a fresh record at once, one does it and the others wait for it."""
    scripts = ScriptDirectory.from_config(config())
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        version = current_version(connection)
        if version not in {None, *(script.revision for script in scripts.walk_revisions())}:
            newer = f"was written by a newer release of recover (its version is {version})"
            raise RecordError(f"The record at {name} {newer}; upgrade recover, or name another with RECOVER_DB.")
        if version != scripts.get_current_head():
            move(connection, "head")


def current_version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def move(connection: Connection, to: str) -> None:
    """Up to a revision or `head`, down to `base` or by `-1`, inside the connection's transaction."""
    (command.downgrade if to == "base" or to.startswith("-") else command.upgrade)(config(connection), to)


def config(connection: Connection | None = None) -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    settings.attributes["connection"] = connection
    return settings
