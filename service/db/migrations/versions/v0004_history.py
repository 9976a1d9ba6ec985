"""Narrow rows of designs with covering indexes, their records apart; studies know their workload and queue."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEPT_NUMBERS = (
    "node_nm", "array_m", "array_n", "array_k", "arrays_per_core", "n_cores", "clock_hz", "vector_lanes_per_core",
    "scratchpad_bytes_per_core", "l2_bytes", "noc_bytes_per_cycle_per_core", "memory_stacks",
    "memory_bandwidth_bytes_per_s", "memory_capacity_bytes", "scale_up_bytes_per_s", "scale_out_bytes_per_s",
    "int8_rate_ratio", "fp8_rate_ratio", "fp6_rate_ratio", "fp4_rate_ratio",
    "area_mm2", "tdp_w", "average_power_w", "unit_cost_usd", "requests_per_s", "output_tokens_per_s",
    "output_tokens_per_s_per_chip", "sustainable_requests_per_s", "sustainable_output_tokens_per_s",
    "sustainable_output_tokens_per_s_per_w", "ttft_p95_s", "tpot_p95_s", "energy_per_output_token_j",
    "usd_per_million_output_tokens", "images_per_s", "trained_tokens_per_s", "size_hit_rate", "reshape_cost",
)  # fmt: skip
_NEW_DESIGN_NUMBERS = (
    "array_groups", "host_bytes_per_s", "bf16_rate_ratio", "fp32_rate_ratio", "tf32_rate_ratio", "bulk_async_copy",
    "l2_halves", "register_file_bytes_per_core", "fp64_lanes_per_core", "spare_core_fraction", "spare_l2_fraction",
    "spare_memory_stacks", "short_reach_bytes_per_s", "n_dies", "other_area_mm2",
)  # fmt: skip
_NEW_METRICS = (
    "full_rate_power_w", "static_power_w", "usd_per_hour", "usd_per_unit", "usd_per_million_trained_tokens",
    "units_per_s", "step_s", "output_tokens_per_s_per_mm2", "output_tokens_per_s_per_usd", "energy_per_request_j",
    "energy_per_unit_j", "trained_tokens_per_s_per_w", "combined_relative_rate", "regret",
)  # fmt: skip
_KEPT_TEXTS = ("memory_kind", "stationarity", "bottleneck")
_NEW_TEXTS = ("second_tier", "core_control")
_NUMBERS = (*_KEPT_NUMBERS, *_NEW_DESIGN_NUMBERS, *_NEW_METRICS)
_OLD_INDEXED = ("area_mm2", "sustainable_output_tokens_per_s", "usd_per_million_output_tokens", "ttft_p95_s")
_INDEXED = (*_OLD_INDEXED, "tpot_p95_s")
_COVERED = (*_INDEXED, "feasible")


def upgrade() -> None:
    """Move every design into its narrow row, its record beside it, and add what studies need."""
    _extend_studies()
    for name in _OLD_INDEXED:
        op.drop_index(f"ix_designs_{name}", "designs")
    op.rename_table("designs", "old_designs")
    op.create_table(
        "designs", *_key_columns("designs_key"), sa.Column("chunk", sa.Integer, nullable=False),
        sa.Column("feasible", sa.Boolean, nullable=False), sa.Column("judgement_key", sa.BigInteger),
        *(sa.Column(name, sa.Double) for name in _NUMBERS), *(sa.Column(name, sa.String(40)) for name in
                                                              (*_KEPT_TEXTS, *_NEW_TEXTS)),
    )  # fmt: skip
    op.create_table("design_records", *_key_columns("design_records_key"), sa.Column("rest", sa.JSON, nullable=False))
    _copy_rows()
    op.drop_table("old_designs")
    op.create_index("ix_designs_judgement_key", "designs", ["judgement_key"])
    for name in _INDEXED:
        op.create_index(f"ix_designs_{name}", "designs", [name, *(other for other in _COVERED if other != name)])


def downgrade() -> None:
    """Go back to one wide row for each design; what the columns alone held stays in them."""
    for name in (*_INDEXED, "judgement_key"):
        op.drop_index(f"ix_designs_{name}", "designs")
    op.rename_table("designs", "new_designs")
    op.create_table(
        "designs", *_key_columns("old_designs_key"), sa.Column("chunk", sa.Integer, nullable=False),
        sa.Column("feasible", sa.Boolean, nullable=False), sa.Column("record", sa.JSON, nullable=False),
        *(sa.Column(name, sa.Double) for name in _KEPT_NUMBERS),
        *(sa.Column(name, sa.String(40)) for name in _KEPT_TEXTS),
    )  # fmt: skip
    kept = ", ".join((*_KEPT_NUMBERS, *_KEPT_TEXTS))
    op.execute(
        f"INSERT INTO designs (study_id, number, chunk, feasible, record, {kept}) "
        f"SELECT d.study_id, d.number, d.chunk, d.feasible, r.rest, {', '.join(f'd.{n}' for n in kept.split(', '))} "
        "FROM new_designs d JOIN design_records r ON r.study_id = d.study_id AND r.number = d.number"
    )
    op.drop_table("new_designs")
    op.drop_table("design_records")
    for name in _OLD_INDEXED:
        op.create_index(f"ix_designs_{name}", "designs", [name])
    op.drop_index("ix_studies_workload_hash", "studies")
    for column in ("workload_hash", "priority", "queue", "warm_start", "from_history_done"):
        op.drop_column("studies", column)


def _extend_studies() -> None:
    for column in (
        sa.Column("workload_hash", sa.String(64), nullable=False, server_default=""),
        sa.Column("priority", sa.Integer, nullable=False, server_default="100"),
        sa.Column("queue", sa.String(20), nullable=False, server_default="studies"),
        sa.Column("warm_start", sa.JSON),
        sa.Column("from_history_done", sa.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("studies", column)
    op.create_index("ix_studies_workload_hash", "studies", ["workload_hash"])


def _key_columns(name: str) -> tuple[sa.Column[Any] | sa.PrimaryKeyConstraint, ...]:
    """Study and number as primary key; its name must differ from that of the table it replaces."""
    return (
        sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("study_id", "number", name=name),
    )


def _copy_rows() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    texts = [_path(sqlite, "design", name, "") for name in _NEW_TEXTS]
    parameters = [_path(sqlite, "design", name, "::double precision") for name in _NEW_DESIGN_NUMBERS]
    metrics = [_path(sqlite, "metrics", name, "::double precision") for name in _NEW_METRICS]
    kept = (*_KEPT_NUMBERS, *_KEPT_TEXTS)
    names = ", ".join((*kept, *_NEW_TEXTS, *_NEW_DESIGN_NUMBERS, *_NEW_METRICS))
    values = ", ".join((*kept, *texts, *parameters, *metrics))
    op.execute(
        f"INSERT INTO designs (study_id, number, chunk, feasible, {names}) "
        f"SELECT study_id, number, chunk, feasible, {values} FROM old_designs"
    )
    op.execute("INSERT INTO design_records (study_id, number, rest) SELECT study_id, number, record FROM old_designs")


def _path(sqlite: bool, part: str, name: str, cast: str) -> str:
    """SQL that reads one value of the record."""
    if sqlite:
        return f"json_extract(record, '$.{part}.{name}')"
    return f"(record->'{part}'->>'{name}'){cast}"
