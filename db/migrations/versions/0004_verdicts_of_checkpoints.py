"""A verdict belongs to a checkpoint, since a cycle may have several attempts; deleted weights are recorded."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

CYCLES = sa.table("cycles", sa.column("id", sa.Integer()), sa.column("verdict", sa.JSON(none_as_null=True)))
CHECKPOINTS = sa.table(
    "checkpoints",
    sa.column("id", sa.Integer()),
    sa.column("cycle_id", sa.Integer()),
    sa.column("role", sa.String()),
    sa.column("verdict", sa.JSON(none_as_null=True)),
)
PROMOTIONS = sa.table(
    "promotions",
    sa.column("id", sa.Integer()),
    sa.column("cycle_id", sa.Integer()),
    sa.column("checkpoint_id", sa.Integer()),
    sa.column("decision", sa.String()),
    sa.column("why", sa.String()),
)


def upgrade() -> None:
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.add_column(sa.Column("verdict", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_promotions_checkpoint_id"), "promotions", ["checkpoint_id"])
    connection = op.get_bind()
    for cycle, verdict in connection.execute(sa.select(CYCLES.c.id, CYCLES.c.verdict)).all():
        checkpoint = _judged_checkpoint(connection, cycle, verdict) if verdict else None
        if checkpoint is not None:
            values = {name: value for name, value in verdict.items() if name != "checkpoint"}
            connection.execute(sa.update(CHECKPOINTS).where(CHECKPOINTS.c.id == checkpoint).values(verdict=values))
    with op.batch_alter_table("cycles", schema=None) as batch_op:
        batch_op.drop_column("verdict")


def downgrade() -> None:
    with op.batch_alter_table("cycles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("verdict", sa.JSON(none_as_null=True), nullable=True))
    connection = op.get_bind()
    chosen = sa.select(CHECKPOINTS.c.id, CHECKPOINTS.c.cycle_id, CHECKPOINTS.c.verdict).order_by(CHECKPOINTS.c.id)
    for id, cycle, verdict in connection.execute(chosen.where(CHECKPOINTS.c.cycle_id.is_not(None))).all():
        if verdict:
            values = {**verdict, "checkpoint": id}
            connection.execute(sa.update(CYCLES).where(CYCLES.c.id == cycle).values(verdict=values))
    op.drop_index(op.f("ix_promotions_checkpoint_id"), "promotions")
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.drop_column("deleted_at")
        batch_op.drop_column("verdict")


def _judged_checkpoint(connection: sa.Connection, cycle: int, verdict: dict[str, Any]) -> int | None:
    """The checkpoint that a cycle's verdict is about: the one it names, else the one that the gate decided about with
    the verdict's reason, else the last one of the cycle that was distilled."""
    if verdict.get("checkpoint") is not None:
        return int(verdict["checkpoint"])
    decisions = sa.select(PROMOTIONS.c.checkpoint_id, PROMOTIONS.c.why).where(PROMOTIONS.c.cycle_id == cycle)
    reason = str(verdict.get("reason") or "")
    for checkpoint, why in connection.execute(decisions.order_by(PROMOTIONS.c.id)).all():
        if reason and str(why).endswith(reason):
            return int(checkpoint)
    recovered = sa.select(sa.func.max(CHECKPOINTS.c.id))
    recovered = recovered.where(CHECKPOINTS.c.cycle_id == cycle, CHECKPOINTS.c.role == "recovered")
    return connection.execute(recovered).scalar()
