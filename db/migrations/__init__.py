"""Bringing a database to the tables of this release.

A new step, after changing `db/tables.py`:  python -m db.migrations "what changes"
"""

from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

VERSION_TABLE = "recover_version"


def migrate(engine: Engine, name: str) -> None:
    """Bring the database up to date; one from a newer release is refused.

    Nearly always there is nothing to do, and then Alembic, two fifths of what a command imports, is left alone."""
    if _version(engine) != newest():
        from db.migrations.steps import bring_up_to_date

        bring_up_to_date(engine, name)


def newest() -> str:
    """Of this release, by the steps' file names."""
    return max(file.name.partition("_")[0] for file in (Path(__file__).parent / "versions").glob("[0-9]*_*.py"))


def _version(engine: Engine) -> str | None:
    """None where it cannot be told: whoever brings it up to date finds out why."""
    try:
        with engine.connect() as connection:
            return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    except DBAPIError:
        return None
