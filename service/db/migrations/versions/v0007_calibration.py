"""Calibration profiles and measurements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "profiles",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, index=True),
        sa.Column("device", sa.String(100), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False, index=True),
    )
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("batch", sa.String(40), nullable=False, index=True),
        sa.Column("device", sa.String(100), nullable=False, index=True),
        sa.Column("family", sa.String(40), nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        sa.Column("columns", sa.JSON, nullable=False),
        sa.Column("measured_s", sa.Double, nullable=False),
        sa.Column("predicted_s", sa.Double, nullable=False),
        sa.Column("bound_s", sa.Double, nullable=False),
        sa.Column("model_version", sa.String(40), nullable=False),
        sa.Column("profile", sa.String(200), nullable=False),
        sa.Column("kernel", sa.String(200), nullable=False),
        sa.Column("software_version", sa.String(200), nullable=False),
        sa.Column("clock_hz", sa.Double),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop both tables with everything in them."""
    op.drop_table("measurements")
    op.drop_table("profiles")
