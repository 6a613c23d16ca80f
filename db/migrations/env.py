"""What Alembic runs to carry out a migration. The connection is handed in, already inside a transaction."""

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from db.migrations import VERSION_TABLE
from db.tables import Table


def stored_type(kind: str, item: Any, _: object) -> str | Literal[False]:
    """A migration names what the database stores, not our types: those may change, a step once taken may not."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite cannot alter most of a table in place
    render_item=stored_type,
    transactional_ddl=True,  # both databases can; Alembic believes that SQLite cannot
)
context.run_migrations()
