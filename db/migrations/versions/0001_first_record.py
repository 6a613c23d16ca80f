"""First record: until the first release, the tables as `db/tables.py` declares them."""

from alembic import op

from db.tables import Table

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    Table.metadata.create_all(op.get_bind())
