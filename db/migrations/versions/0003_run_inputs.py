"""What a run was given has a column of its own; settings carry today's names."""

import sqlalchemy as sa
from alembic import op

from db.migrations.renamed_settings import join, split

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

RUNS = sa.table(
    "runs",
    sa.column("id", sa.Integer()),
    sa.column("kind", sa.String()),
    sa.column("settings", sa.JSON(none_as_null=True)),
    sa.column("inputs", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("inputs", sa.JSON(none_as_null=True), nullable=True))
    connection = op.get_bind()
    for id, kind, old_settings in connection.execute(sa.select(RUNS.c.id, RUNS.c.kind, RUNS.c.settings)).all():
        settings, inputs = split(kind, old_settings)
        connection.execute(sa.update(RUNS).where(RUNS.c.id == id).values(settings=settings, inputs=inputs))


def downgrade() -> None:
    connection = op.get_bind()
    chosen = sa.select(RUNS.c.id, RUNS.c.settings, RUNS.c.inputs)
    for id, settings, inputs in connection.execute(chosen).all():
        values = {"settings": join(settings, inputs or {})}
        connection.execute(sa.update(RUNS).where(RUNS.c.id == id).values(**values))
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_column("inputs")
