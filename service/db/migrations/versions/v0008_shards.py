"""Outcomes of the shards of a proof."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "shard_outcomes",
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("outcome", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    """Drop the table with everything in it."""
    op.drop_table("shard_outcomes")
