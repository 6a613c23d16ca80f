"""Run migrations through Alembic, configured here instead of in an alembic.ini."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from db.errors import RecordError
from db.migrations import VERSION_TABLE

_LOCK = 0x7265636F766572  # "recover": any number, the same in every process


def bring_up_to_date(engine: Engine, name: str) -> None:
    """Run all missing migrations in one transaction; processes that open the record meanwhile wait for it."""
    scripts = ScriptDirectory.from_config(config())
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        version = current_version(connection)
        if version not in {None, *(script.revision for script in scripts.walk_revisions())}:
            raise RecordError(
                f"The record at {name} was written by a newer release of recover (its version is {version}). "
                "Upgrade recover, or name another record with RECOVER_DB."
            )
        if version != scripts.get_current_head():
            migrate_to(connection, "head")


def current_version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def migrate_to(connection: Connection, revision: str) -> None:
    """Upgrade to a revision or `head`, or downgrade to `base` or by `-1`, inside the connection's transaction."""
    downwards = revision == "base" or revision.startswith("-")
    (command.downgrade if downwards else command.upgrade)(config(connection), revision)


def config(connection: Connection | None = None) -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    settings.attributes["connection"] = connection
    return settings
