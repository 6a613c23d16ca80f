"""The script that Alembic runs for a migration, on a connection that is already inside a transaction."""

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from db.migrations import VERSION_TABLE
from db.tables import Table


def stored_type(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Write the database's own type into a migration, not ours: ours may change, a released migration may not."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
    render_item=stored_type,
    transactional_ddl=True,  # both databases can; Alembic assumes that SQLite cannot
)
context.run_migrations()
