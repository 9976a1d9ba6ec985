"""What an operator may set, from arguments or `CHIPFIT_*` environment variables."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any

import limits
from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from explorer.processes import default_processes


def default_data_dir() -> Path:
    """Folder of the embedded database, by the XDG convention."""
    root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(root) / "chipfit"


def _split_at_commas(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[list[str], NoDecode, BeforeValidator(_split_at_commas)]
"""A list; in the environment its parts stand between commas."""


class SettingsError(ValueError):
    """A setting breaks its rule."""


class Settings(BaseSettings):
    """Settings of one server or worker process."""

    model_config = SettingsConfigDict(env_prefix="CHIPFIT_", extra="forbid")

    database_url: str = Field("", description="Database; empty means SQLite in `data_dir`")
    data_dir: Path = Field(default_factory=default_data_dir, description="Folder of the embedded database")
    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    root_path: str = Field("", description="Path prefix that a proxy serves and strips")
    migrate: bool = Field(True, description="Bring the database schema up to date at start")
    run_studies: bool = Field(True, description="Run studies in this process, beside HTTP")
    study_concurrency: int = Field(1, ge=1, description="Studies that this process runs at the same time")
    cell_concurrency: int = Field(1, ge=1, description="Cells of sweeps and runs of schedules it runs beside them")
    shard_concurrency: int = Field(1, ge=1, description="Shards of proofs that this process runs beside them")
    processes: int = Field(default_factory=default_processes, ge=1, le=64, description="Processes that share a proof")
    max_running_studies: int | None = Field(None, ge=1, description="Studies that all processes together run")
    max_running_cells: int | None = Field(None, ge=1, description="Cells and runs that all processes together run")
    max_sweep_cells: int = Field(1000, ge=1, description="Most cells of one sweep")
    max_schedules: int = Field(1000, ge=1, description="Most schedules of one key")
    beat_interval_s: float = Field(2.0, gt=0, description="Time between two heartbeats of an executor [s]")
    stale_after_s: float = Field(10.0, gt=0, description="Age of a heartbeat after which an executor is dead [s]")
    queue_interval_s: float = Field(0.25, gt=0, description="Time between two looks for queued work [s]")
    supervise_interval_s: float = Field(0.5, gt=0, description="Time between two looks for work to hand over [s]")
    schedule_interval_s: float = Field(1.0, gt=0, description="Time between two looks for schedules that fire [s]")
    event_poll_interval_s: float = Field(0.2, gt=0, description="Time between two looks for new events [s]")
    stop_timeout_s: float = Field(10.0, ge=0, description="Longest wait for running steps at shutdown [s]")
    require_keys: bool = Field(False, description="Ask for an API key on loopback too; elsewhere it always is")
    allowed_hosts: Names = Field([], description="Names in the Host header that are answered; empty for all")
    cors_origins: Names = Field([], description="Origins whose pages may call the API from a browser")
    rate_limit: str = Field("3000/minute", description="Requests of one key, in the notation of the limits library")
    max_body_bytes: int = Field(16 * 1024**2, gt=0, description="Largest request body accepted [B]")
    max_upload_bytes: int = Field(64 * 1024**2, gt=0, description="Largest workload file accepted, unpacked [B]")
    body_timeout_s: float = Field(30.0, gt=0, description="Time in which a request body must have arrived [s]")
    header_timeout_s: float = Field(10.0, gt=0, description="Time in which the head of a request must have arrived [s]")
    idempotency_kept_s: float = Field(86_400.0, gt=0, description="Time for which an Idempotency-Key is known [s]")
    max_trials: int = Field(100_000, ge=1, description="Most trials of one study")
    max_search_time_s: float = Field(86_400.0, gt=0, description="Longest search time of one study [s]")
    max_space_designs: float = Field(1e18, ge=1, description="Most designs in the space of one study")
    max_unfinished_studies: int = Field(100, ge=1, description="Most queued and running studies of one key")
    max_evaluated_designs: int = Field(10_000, ge=1, description="Most designs in one evaluation")
    heavy_requests: int = Field(2, ge=1, description="Requests that run the model at the same time; others wait")

    @property
    def resolved_database_url(self) -> str:
        """URL of the database, the embedded one where none is set."""
        return self.database_url or f"sqlite:///{self.data_dir / 'chipfit.sqlite'}"

    @property
    def keys_required(self) -> bool:
        """Whether callers need an API key: always where other machines can reach the server."""
        return self.require_keys or not is_loopback(self.host)

    @field_validator("rate_limit")
    @classmethod
    def _readable_rate(cls, value: str) -> str:
        try:
            limits.parse(value)
        except ValueError as error:
            raise ValueError(f"must be a rate such as '3000/minute', got '{value}'") from error
        return value


def read_settings(**stated: Any) -> Settings:
    """
    Return the settings of the environment with those stated over them.

    Raises
    ------
    SettingsError
        That names each setting at fault and its rule.
    """
    try:
        return Settings(**stated)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}, got {each['input']!r}" for each in error.errors()]
        raise SettingsError("; ".join(faults)) from None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
