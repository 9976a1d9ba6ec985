"""Tables of the service. Quantities are SI, with the unit at the end of the name; times are seconds since 1970."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DESIGN_NUMBERS = (
    "node_nm", "array_m", "array_n", "array_k", "array_groups", "arrays_per_core", "n_cores", "clock_hz",
    "vector_lanes_per_core", "scratchpad_bytes_per_core", "l2_bytes", "noc_bytes_per_cycle_per_core", "memory_stacks",
    "memory_bandwidth_bytes_per_s", "memory_capacity_bytes", "scale_up_bytes_per_s", "scale_out_bytes_per_s",
    "host_bytes_per_s", "bf16_rate_ratio", "fp32_rate_ratio", "tf32_rate_ratio", "int8_rate_ratio", "fp8_rate_ratio",
    "fp6_rate_ratio", "fp4_rate_ratio", "bulk_async_copy", "l2_halves", "register_file_bytes_per_core",
    "fp64_lanes_per_core", "spare_core_fraction", "spare_l2_fraction", "spare_memory_stacks",
    "short_reach_bytes_per_s", "n_dies", "other_area_mm2",
)  # fmt: skip
DESIGN_TEXTS = ("memory_kind", "stationarity", "second_tier", "core_control")
"""Choices among the parameters, kept as their names."""

METRIC_NUMBERS = (
    "area_mm2", "tdp_w", "average_power_w", "full_rate_power_w", "static_power_w", "unit_cost_usd", "usd_per_hour",
    "usd_per_unit", "usd_per_million_output_tokens", "usd_per_million_trained_tokens", "units_per_s", "step_s",
    "requests_per_s", "output_tokens_per_s", "output_tokens_per_s_per_chip", "output_tokens_per_s_per_mm2",
    "output_tokens_per_s_per_usd", "sustainable_requests_per_s", "sustainable_output_tokens_per_s",
    "sustainable_output_tokens_per_s_per_w", "ttft_p95_s", "tpot_p95_s", "energy_per_output_token_j",
    "energy_per_request_j", "energy_per_unit_j", "images_per_s", "trained_tokens_per_s", "trained_tokens_per_s_per_w",
    "combined_relative_rate", "regret", "size_hit_rate", "reshape_cost",
)  # fmt: skip
METRIC_TEXTS = ("bottleneck",)

NUMBER_COLUMNS = (*DESIGN_NUMBERS, *METRIC_NUMBERS)
TEXT_COLUMNS = (*DESIGN_TEXTS, *METRIC_TEXTS)
"""Parameters and metrics with a typed column of their own in `designs`; others are in `design_records`."""

INDEXED_COLUMNS = (
    "area_mm2", "sustainable_output_tokens_per_s", "usd_per_million_output_tokens", "ttft_p95_s", "tpot_p95_s",
)  # fmt: skip
COVERED_COLUMNS = (*INDEXED_COLUMNS, "feasible")
"""Every index of an indexed column holds all of these, so a filter on them is answered by any of the indexes."""


def covering_index_columns(name: str) -> tuple[str, ...]:
    """Columns of the index by which the history is sorted by `name`."""
    return (name, *(other for other in COVERED_COLUMNS if other != name))


class Table(DeclarativeBase):
    """Base of the mapped classes."""


class Study(Table):
    """One study: what was asked, how far it is, what came out."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    owner: Mapped[str] = mapped_column(sa.String(40), default="")
    state: Mapped[str] = mapped_column(sa.String(16), index=True)
    attempt: Mapped[int] = mapped_column(default=1)
    enqueued_attempt: Mapped[int] = mapped_column(default=0)
    version: Mapped[int] = mapped_column(default=1)
    document: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    model_version: Mapped[str] = mapped_column(sa.String(40))
    workload_hash: Mapped[str] = mapped_column(sa.String(64), default="", index=True)
    priority: Mapped[int] = mapped_column(default=100)
    queue: Mapped[str] = mapped_column(sa.String(20), default="studies")
    warm_start: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    chunks_planned: Mapped[int | None]
    timeout_s: Mapped[float | None]
    chunks_done: Mapped[int] = mapped_column(default=0)
    trials_done: Mapped[int] = mapped_column(default=0)
    feasible_done: Mapped[int] = mapped_column(default=0)
    from_history_done: Mapped[int] = mapped_column(default=0)
    busy_s: Mapped[float] = mapped_column(default=0.0)
    result: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    error: Mapped[str | None] = mapped_column(sa.Text)
    created_at_s: Mapped[float] = mapped_column(index=True)
    started_at_s: Mapped[float | None]
    finished_at_s: Mapped[float | None]


class StudyEvent(Table):
    """Something that happened to a study, in order; `key` makes a repeated step write it once."""

    __tablename__ = "study_events"
    __table_args__ = (sa.UniqueConstraint("study_id", "key"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    study_id: Mapped[str] = mapped_column(sa.ForeignKey("studies.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(sa.String(40))
    kind: Mapped[str] = mapped_column(sa.String(20))
    data: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    created_at_s: Mapped[float]


class Executor(Table):
    """A process that runs studies, and when it last said so."""

    __tablename__ = "executors"

    id: Mapped[str] = mapped_column(sa.String(80), primary_key=True)
    machine: Mapped[str] = mapped_column(sa.String(200))
    pid: Mapped[int]
    process_started: Mapped[str] = mapped_column(sa.String(40))
    runs_studies: Mapped[bool]
    started_at_s: Mapped[float]
    heartbeat_at_s: Mapped[float]


class UploadedWorkload(Table):
    """A workload file that a caller sent, with what it asks for; its id is a hash of the content."""

    __tablename__ = "workloads"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    kind: Mapped[str] = mapped_column(sa.String(20))
    sha256: Mapped[str] = mapped_column(sa.String(64))
    size_bytes: Mapped[int]
    zero_token_rows: Mapped[str] = mapped_column(sa.String(10))
    packed: Mapped[bytes] = mapped_column(sa.LargeBinary, deferred=True)
    inspection: Mapped[dict[str, Any]] = mapped_column(sa.JSON, deferred=True)
    created_at_s: Mapped[float] = mapped_column(index=True)


class UploadedNetwork(Table):
    """A network's configuration that a caller sent, with its main figures; its id is a hash of name and content."""

    __tablename__ = "networks"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(100), unique=True)
    sha256: Mapped[str] = mapped_column(sa.String(64))
    config: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    figures: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    created_at_s: Mapped[float]


class StudyInput(Table):
    """An uploaded workload or network that a study reads, and which therefore stays."""

    __tablename__ = "study_inputs"

    study_id: Mapped[str] = mapped_column(sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    input_id: Mapped[str] = mapped_column(sa.String(40), primary_key=True, index=True)


class ShardOutcome(Table):
    """What one shard of a study's proof has found, or the error it ended with."""

    __tablename__ = "shard_outcomes"

    study_id: Mapped[str] = mapped_column(sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    shard: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    outcome: Mapped[dict[str, Any]] = mapped_column(sa.JSON)


class Sweep(Table):
    """A grid of studies: what is varied, and when it was asked for."""

    __tablename__ = "sweeps"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    owner: Mapped[str] = mapped_column(sa.String(40), default="")
    document: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    created_at_s: Mapped[float] = mapped_column(index=True)


class SweepCell(Table):
    """One study of a sweep, with its place on every axis."""

    __tablename__ = "sweep_cells"

    sweep_id: Mapped[str] = mapped_column(sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    coordinates: Mapped[list[int]] = mapped_column(sa.JSON)
    study_id: Mapped[str] = mapped_column(sa.String(40), index=True)


class Schedule(Table):
    """When a study is repeated."""

    __tablename__ = "schedules"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    owner: Mapped[str] = mapped_column(sa.String(40), default="")
    state: Mapped[str] = mapped_column(sa.String(10))
    cron: Mapped[str] = mapped_column(sa.String(100))
    time_zone: Mapped[str] = mapped_column(sa.String(60))
    overlap: Mapped[str] = mapped_column(sa.String(20))
    missed: Mapped[str] = mapped_column(sa.String(20))
    missed_after_s: Mapped[float]
    document: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    next_fire_at_s: Mapped[float | None] = mapped_column(index=True)
    created_at_s: Mapped[float] = mapped_column(index=True)
    version: Mapped[int] = mapped_column(default=1)


class ScheduleRun(Table):
    """One fire of a schedule: the study it started or why it did not, and how its result differs from the last one."""

    __tablename__ = "schedule_runs"

    schedule_id: Mapped[str] = mapped_column(sa.ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True)
    fire_at_s: Mapped[float] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(12))
    skipped_because: Mapped[str | None] = mapped_column(sa.Text)
    study_id: Mapped[str | None] = mapped_column(sa.String(40), index=True)
    drift: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    created_at_s: Mapped[float]


class EvaluationAnswer(Table):
    """The answer to one evaluation request, by model version and content of the request."""

    __tablename__ = "evaluations"

    key: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    model_version: Mapped[str] = mapped_column(sa.String(40))
    answer: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    created_at_s: Mapped[float]


class Suggestion(Table):
    """A trial that was handed out to be judged elsewhere: on loan until its lease ends, then done or failed."""

    __tablename__ = "suggestions"

    study_id: Mapped[str] = mapped_column(sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(sa.String(16))
    client: Mapped[str] = mapped_column(sa.String(80))
    leases: Mapped[int]
    lease_expires_at_s: Mapped[float]
    params: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    design: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    failure: Mapped[str | None] = mapped_column(sa.Text)


class ApiKey(Table):
    """A caller's key; of its secret only the hash is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    secret_sha256: Mapped[str] = mapped_column(sa.String(64))
    scope: Mapped[str] = mapped_column(sa.String(16))
    created_at_s: Mapped[float]
    expires_at_s: Mapped[float | None]
    revoked_at_s: Mapped[float | None]
    last_used_at_s: Mapped[float | None]


class AuditEntry(Table):
    """One call that changed something or was forbidden, and who made it."""

    __tablename__ = "audit_log"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_s: Mapped[float] = mapped_column(index=True)
    key_id: Mapped[str] = mapped_column(sa.String(40))
    action: Mapped[str] = mapped_column(sa.String(300))
    status: Mapped[int]
    request_id: Mapped[str] = mapped_column(sa.String(64))
    address: Mapped[str] = mapped_column(sa.String(80))


class IdempotentCall(Table):
    """A call under an Idempotency-Key: in flight while it has no status, then its answer."""

    __tablename__ = "idempotent_calls"

    caller: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(sa.String(64))
    executor_id: Mapped[str] = mapped_column(sa.String(80))
    began_at_s: Mapped[float]
    expires_at_s: Mapped[float] = mapped_column(index=True)
    status: Mapped[int | None]
    headers: Mapped[dict[str, str] | None] = mapped_column(sa.JSON(none_as_null=True))
    body: Mapped[str | None] = mapped_column(sa.Text)


designs = sa.Table(
    "designs",
    Table.metadata,
    sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("chunk", sa.Integer, nullable=False),
    sa.Column("feasible", sa.Boolean, nullable=False),
    sa.Column("judgement_key", sa.BigInteger),
    *(sa.Column(name, sa.Double) for name in NUMBER_COLUMNS),
    *(sa.Column(name, sa.String(40)) for name in TEXT_COLUMNS),
    sa.Index("ix_designs_judgement_key", "judgement_key"),
    *(sa.Index(f"ix_designs_{name}", *covering_index_columns(name)) for name in INDEXED_COLUMNS),
)
"""One narrow row per trial, so that a filter on any column reads little; a metric goes before a parameter of its name.

`judgement_key` hashes model version, workload and parameters; it is empty where the operating point was stated.
"""

design_records = sa.Table(
    "design_records",
    Table.metadata,
    sa.Column("study_id", sa.String(40), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rest", sa.JSON, nullable=False),
)
"""What a trial's record holds beyond the columns of `designs`."""


class StoredProfile(Table):
    """A calibration profile that a caller sent; its id is a hash of the content."""

    __tablename__ = "profiles"

    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200), index=True)
    device: Mapped[str] = mapped_column(sa.String(100))
    document: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    created_at_s: Mapped[float] = mapped_column(index=True)


class Measurement(Table):
    """One measured time beside the prediction of the version of the model that was there when it came."""

    __tablename__ = "measurements"

    id: Mapped[int] = mapped_column(primary_key=True)
    batch: Mapped[str] = mapped_column(sa.String(40), index=True)
    device: Mapped[str] = mapped_column(sa.String(100), index=True)
    family: Mapped[str] = mapped_column(sa.String(40))
    line: Mapped[int]
    columns: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    measured_s: Mapped[float]
    predicted_s: Mapped[float]
    bound_s: Mapped[float]
    model_version: Mapped[str] = mapped_column(sa.String(40))
    profile: Mapped[str] = mapped_column(sa.String(200), default="")
    kernel: Mapped[str] = mapped_column(sa.String(200), default="")
    software_version: Mapped[str] = mapped_column(sa.String(200), default="")
    clock_hz: Mapped[float | None]
    created_at_s: Mapped[float]
