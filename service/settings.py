"""What an operator may set, from arguments or `CHIPFIT_*` environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_data_dir() -> Path:
    """Folder of the embedded database, by the XDG convention."""
    root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(root) / "chipfit"


class Settings(BaseSettings):
    """Settings of one server or worker process."""

    model_config = SettingsConfigDict(env_prefix="CHIPFIT_", extra="forbid")

    database_url: str = Field("", description="Database; empty means SQLite in `data_dir`")
    data_dir: Path = Field(default_factory=default_data_dir, description="Folder of the embedded database")
    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    root_path: str = Field("", description="Path prefix under which a proxy serves the application")
    migrate: bool = Field(True, description="Bring the database schema up to date at start")
    run_studies: bool = Field(True, description="Run studies in this process, one at a time, beside HTTP")
    beat_interval_s: float = Field(2.0, gt=0, description="Time between two heartbeats of an executor [s]")
    stale_after_s: float = Field(10.0, gt=0, description="Age of a heartbeat after which an executor is dead [s]")
    supervise_interval_s: float = Field(0.5, gt=0, description="Time between two looks for work to hand over [s]")
    event_poll_interval_s: float = Field(0.2, gt=0, description="Time between two looks for new events [s]")
    stop_timeout_s: float = Field(10.0, ge=0, description="Longest wait for running steps at shutdown [s]")
    max_body_bytes: int = Field(16 * 1024**2, gt=0, description="Largest request body accepted [B]")

    @property
    def resolved_database_url(self) -> str:
        """URL of the database, the embedded one where none is set."""
        return self.database_url or f"sqlite:///{self.data_dir / 'chipfit.sqlite'}"
