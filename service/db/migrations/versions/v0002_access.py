"""API keys, the audit log, calls under an Idempotency-Key, owners of studies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.add_column("studies", sa.Column("owner", sa.String(40), nullable=False, server_default=""))
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sa.Column("expires_at_s", sa.Double),
        sa.Column("revoked_at_s", sa.Double),
        sa.Column("last_used_at_s", sa.Double),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("action", sa.String(300), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("address", sa.String(80), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_log_at_s", "audit_log", ["at_s"])
    op.create_table(
        "idempotent_calls",
        sa.Column("caller", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("executor_id", sa.String(80), nullable=False),
        sa.Column("began_at_s", sa.Double, nullable=False),
        sa.Column("expires_at_s", sa.Double, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("headers", sa.JSON),
        sa.Column("body", sa.Text),
    )
    op.create_index("ix_idempotent_calls_expires_at_s", "idempotent_calls", ["expires_at_s"])


def downgrade() -> None:
    """Drop the tables with everything in them."""
    for table in ("idempotent_calls", "audit_log", "api_keys"):
        op.drop_table(table)
    op.drop_column("studies", "owner")
