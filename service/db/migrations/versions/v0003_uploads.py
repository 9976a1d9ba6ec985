"""Uploaded workloads and networks, and which study reads which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "workloads",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("zero_token_rows", sa.String(10), nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        sa.Column("inspection", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )
    op.create_index("ix_workloads_created_at_s", "workloads", ["created_at_s"])
    op.create_table(
        "networks",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("figures", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "study_inputs",
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("input_id", sa.String(40), primary_key=True),
    )
    op.create_index("ix_study_inputs_input_id", "study_inputs", ["input_id"])


def downgrade() -> None:
    """Drop the tables with everything in them."""
    for table in ("study_inputs", "networks", "workloads"):
        op.drop_table(table)
