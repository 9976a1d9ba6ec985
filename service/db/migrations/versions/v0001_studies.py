"""Studies, their events and designs, executors, evaluations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBERS = (
    "node_nm", "array_m", "array_n", "array_k", "arrays_per_core", "n_cores", "clock_hz", "vector_lanes_per_core",
    "scratchpad_bytes_per_core", "l2_bytes", "noc_bytes_per_cycle_per_core", "memory_stacks",
    "memory_bandwidth_bytes_per_s", "memory_capacity_bytes", "scale_up_bytes_per_s", "scale_out_bytes_per_s",
    "int8_rate_ratio", "fp8_rate_ratio", "fp6_rate_ratio", "fp4_rate_ratio",
    "area_mm2", "tdp_w", "average_power_w", "unit_cost_usd", "requests_per_s", "output_tokens_per_s",
    "output_tokens_per_s_per_chip", "sustainable_requests_per_s", "sustainable_output_tokens_per_s",
    "sustainable_output_tokens_per_s_per_w", "ttft_p95_s", "tpot_p95_s", "energy_per_output_token_j",
    "usd_per_million_output_tokens", "images_per_s", "trained_tokens_per_s", "size_hit_rate", "reshape_cost",
)  # fmt: skip
_TEXTS = ("memory_kind", "stationarity", "bottleneck")
_INDEXED = ("area_mm2", "sustainable_output_tokens_per_s", "usd_per_million_output_tokens", "ttft_p95_s")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "studies",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("enqueued_attempt", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("model_version", sa.String(40), nullable=False),
        sa.Column("chunks_planned", sa.Integer),
        sa.Column("timeout_s", sa.Double),
        sa.Column("chunks_done", sa.Integer, nullable=False),
        sa.Column("trials_done", sa.Integer, nullable=False),
        sa.Column("feasible_done", sa.Integer, nullable=False),
        sa.Column("busy_s", sa.Double, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.Text),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sa.Column("started_at_s", sa.Double),
        sa.Column("finished_at_s", sa.Double),
    )
    op.create_index("ix_studies_state", "studies", ["state"])
    op.create_index("ix_studies_created_at_s", "studies", ["created_at_s"])
    op.create_table(
        "study_events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
        sa.Column("key", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sa.UniqueConstraint("study_id", "key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_study_events_study_id", "study_events", ["study_id"])
    op.create_table(
        "designs",
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("chunk", sa.Integer, nullable=False),
        sa.Column("feasible", sa.Boolean, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        *(sa.Column(name, sa.Double) for name in _NUMBERS),
        *(sa.Column(name, sa.String(40)) for name in _TEXTS),
    )
    for name in _INDEXED:
        op.create_index(f"ix_designs_{name}", "designs", [name])
    op.create_table(
        "executors",
        sa.Column("id", sa.String(80), primary_key=True),
        sa.Column("machine", sa.String(200), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_started", sa.String(40), nullable=False),
        sa.Column("runs_studies", sa.Boolean, nullable=False),
        sa.Column("started_at_s", sa.Double, nullable=False),
        sa.Column("heartbeat_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "evaluations",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("model_version", sa.String(40), nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables with everything in them."""
    for table in ("evaluations", "executors", "designs", "study_events", "studies"):
        op.drop_table(table)
