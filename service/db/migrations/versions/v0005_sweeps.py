"""Sweeps with their cells, schedules with their runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )
    op.create_index("ix_sweeps_created_at_s", "sweeps", ["created_at_s"])
    op.create_table(
        "sweep_cells",
        sa.Column("sweep_id", sa.String(40), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("coordinates", sa.JSON, nullable=False),
        sa.Column("study_id", sa.String(40), nullable=False),
    )
    op.create_index("ix_sweep_cells_study_id", "sweep_cells", ["study_id"])
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("cron", sa.String(100), nullable=False),
        sa.Column("time_zone", sa.String(60), nullable=False),
        sa.Column("overlap", sa.String(20), nullable=False),
        sa.Column("missed", sa.String(20), nullable=False),
        sa.Column("missed_after_s", sa.Double, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("next_fire_at_s", sa.Double),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_index("ix_schedules_next_fire_at_s", "schedules", ["next_fire_at_s"])
    op.create_index("ix_schedules_created_at_s", "schedules", ["created_at_s"])
    op.create_table(
        "schedule_runs",
        sa.Column("schedule_id", sa.String(40), sa.ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("fire_at_s", sa.Double, primary_key=True),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("skipped_because", sa.Text),
        sa.Column("study_id", sa.String(40)),
        sa.Column("drift", sa.JSON),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )
    op.create_index("ix_schedule_runs_study_id", "schedule_runs", ["study_id"])


def downgrade() -> None:
    """Drop the tables."""
    for table in ("schedule_runs", "schedules", "sweep_cells", "sweeps"):
        op.drop_table(table)
