"""Uploaded workloads as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.db.tables import UploadedWorkload
from service.schemas.moments import moment

ZeroTokenRows = Literal["refuse", "drop"]


class WorkloadRead(BaseModel):
    """An uploaded workload."""

    id: str = Field(description="Id of the workload, a hash of its content, under which studies name it")
    name: str = Field(description="Name of the file")
    kind: Literal["trace", "gemm_list", "layer_table", "workload", "study"] = Field(description="What the file holds")
    sha256: str = Field(description="SHA-256 of the unpacked content")
    size_bytes: int = Field(description="Size of the unpacked content [B]")
    zero_token_rows: ZeroTokenRows = Field(description="What was asked for rows of a trace without tokens")
    created_at: datetime = Field(description="When it was first sent (UTC)")


class WorkloadInspection(WorkloadRead):
    """An uploaded workload and what it asks for, as `chipfit workload FILE --json` prints it."""

    model_config = ConfigDict(extra="allow")

    requests: dict[str, Any] | None = Field(
        None, description="Requests of a trace or of the one serving scenario: lengths [tokens], rate [1/s], burstiness"
    )
    moments: dict[str, Any] | None = Field(None, description="Exact means that a steady state depends on [tokens]")
    classes: dict[str, Any] | None = Field(None, description="Request classes that stand for all, with their errors")
    scenarios: list[dict[str, Any]] | None = Field(
        None, description="Scenarios of anything but a trace, each with the operators that it becomes"
    )


class WorkloadList(BaseModel):
    """One page of workloads."""

    items: list[WorkloadRead] = Field(description="Workloads, newest first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


def workload_fields(row: UploadedWorkload) -> dict[str, Any]:
    """Fields of a workload as the API shows them."""
    return {
        "id": row.id, "name": row.name, "kind": row.kind, "sha256": row.sha256, "size_bytes": row.size_bytes,
        "zero_token_rows": row.zero_token_rows, "created_at": moment(row.created_at_s),
    }  # fmt: skip
