"""Notes, documents, what a run takes and plans, tokens of rollouts, the order of scores."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("corpus_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["corpus_id"], ["corpora.id"], name=op.f("fk_documents_corpus_id_corpora")),
        sa.PrimaryKeyConstraint("corpus_id", "position", name=op.f("pk_documents")),
    )
    op.create_table(
        "resources",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("values", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_resources_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "at", name=op.f("pk_resources")),
    )
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("checkpoint_id", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(cycle_id IS NULL) <> (checkpoint_id IS NULL)", name=op.f("ck_notes_about")),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_notes_checkpoint_id_checkpoints")),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycles.id"], name=op.f("fk_notes_cycle_id_cycles")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_notes_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notes")),
    )
    with op.batch_alter_table("notes", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_notes_project_id_cycle_id_checkpoint_id"),
            ["project_id", "cycle_id", "checkpoint_id"],
            unique=False,
        )

    with op.batch_alter_table("rollouts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("tokens", sa.JSON(none_as_null=True), nullable=True))

    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("steps", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True))

    with op.batch_alter_table("scores", schema=None) as batch_op:
        batch_op.add_column(sa.Column("position", sa.Integer(), server_default=sa.text("0"), nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("scores", schema=None) as batch_op:
        batch_op.drop_column("position")

    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_column("cancel_requested_at")
        batch_op.drop_column("steps")

    with op.batch_alter_table("rollouts", schema=None) as batch_op:
        batch_op.drop_column("tokens")

    with op.batch_alter_table("notes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_notes_project_id_cycle_id_checkpoint_id"))

    op.drop_table("notes")
    op.drop_table("resources")
    op.drop_table("documents")
