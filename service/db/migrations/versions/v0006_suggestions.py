"""Trials that are judged elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "suggestions",
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("client", sa.String(80), nullable=False),
        sa.Column("leases", sa.Integer, nullable=False),
        sa.Column("lease_expires_at_s", sa.Double, nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("design", sa.JSON, nullable=False),
        sa.Column("failure", sa.Text),
    )


def downgrade() -> None:
    """Drop the table with everything in it."""
    op.drop_table("suggestions")
