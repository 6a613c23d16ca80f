"""First record."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "corpora",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpora")),
        sa.UniqueConstraint("path", "hash", name=op.f("uq_corpora_path_hash")),
    )
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
        "projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("declaration", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("results", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_studies_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
        sa.UniqueConstraint("project_id", "name", "size", "hash", name=op.f("uq_studies_project_id_name_size_hash")),
    )
    op.create_table(
        "cycles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("corpus_id", sa.Integer(), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('open', 'promoted', 'rejected')", name=op.f("ck_cycles_status")),
        sa.ForeignKeyConstraint(["corpus_id"], ["corpora.id"], name=op.f("fk_cycles_corpus_id_corpora")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_cycles_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycles")),
        sa.UniqueConstraint("project_id", "number", name=op.f("uq_cycles_project_id_number")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("inputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("steps", sa.Integer(), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('midtrain', 'distill', 'eval')", name=op.f("ck_runs_kind")),
        sa.CheckConstraint("status IN ('running', 'done', 'failed', 'interrupted')", name=op.f("ck_runs_status")),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycles.id"], name=op.f("fk_runs_cycle_id_cycles")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_runs_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_cycle_id"), "runs", ["cycle_id"])
    op.create_index(op.f("ix_runs_project_id"), "runs", ["project_id"])
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("parent_id", sa.Integer(), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("verdict", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('full', 'adapter')", name=op.f("ck_checkpoints_kind")),
        sa.CheckConstraint("role IN ('base', 'midtrained', 'recovered', 'external')", name=op.f("ck_checkpoints_role")),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycles.id"], name=op.f("fk_checkpoints_cycle_id_cycles")),
        sa.ForeignKeyConstraint(["parent_id"], ["checkpoints.id"], name=op.f("fk_checkpoints_parent_id_checkpoints")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_checkpoints_project_id_projects")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_checkpoints_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
    )
    op.create_index(op.f("ix_checkpoints_cycle_id"), "checkpoints", ["cycle_id"])
    op.create_index(op.f("ix_checkpoints_project_id_role"), "checkpoints", ["project_id", "role"])
    op.create_index(op.f("ix_checkpoints_run_id"), "checkpoints", ["run_id"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_run_id"), "events", ["run_id"])
    op.create_table(
        "points",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_points_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "step", "name", name=op.f("pk_points")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollouts",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("tokens", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_rollouts_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "step", "position", name=op.f("pk_rollouts")),
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
        "evaluations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("checkpoint_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_evaluations_checkpoint_id_checkpoints")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_evaluations_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
    )
    op.create_index(op.f("ix_evaluations_checkpoint_id"), "evaluations", ["checkpoint_id"])
    op.create_index(op.f("ix_evaluations_run_id"), "evaluations", ["run_id"])
    op.create_table(
        "promotions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("cycle_id", sa.Integer(), nullable=True),
        sa.Column("checkpoint_id", sa.Integer(), nullable=False),
        sa.Column("decision", sa.String(length=16), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("decision IN ('promoted', 'rejected')", name=op.f("ck_promotions_decision")),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_promotions_checkpoint_id_checkpoints")
        ),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycles.id"], name=op.f("fk_promotions_cycle_id_cycles")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_promotions_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_promotions")),
    )
    op.create_index(op.f("ix_promotions_checkpoint_id"), "promotions", ["checkpoint_id"])
    op.create_index(op.f("ix_promotions_project_id"), "promotions", ["project_id"])
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
    op.create_index(
        op.f("ix_notes_project_id_cycle_id_checkpoint_id"), "notes", ["project_id", "cycle_id", "checkpoint_id"]
    )
    op.create_table(
        "items",
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.Column("verdicts", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], name=op.f("fk_items_evaluation_id_evaluations")),
        sa.PrimaryKeyConstraint("evaluation_id", "position", name=op.f("pk_items")),
    )
    op.create_table(
        "scores",
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("stderr", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"], ["evaluations.id"], name=op.f("fk_scores_evaluation_id_evaluations")
        ),
        sa.PrimaryKeyConstraint("evaluation_id", "metric", name=op.f("pk_scores")),
    )
