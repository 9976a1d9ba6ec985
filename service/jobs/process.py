"""Identity of a process, so that another one on the same machine can tell at once that it is gone."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: its machine (with boot and process namespace), number and start time."""

    machine: str
    pid: int
    started: str


def current_process() -> ProcessIdentity:
    """Identity of this process."""
    return ProcessIdentity(_machine(), os.getpid(), start_time(os.getpid()) or "unknown")


def new_executor_id() -> str:
    """Return an id that no other start of a process ever has."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def is_known_dead(machine: str, pid: int, started: str) -> bool:
    """Whether the process was on this machine and is there no more; False where that cannot be known."""
    if machine != _machine() or started == "unknown" or not Path("/proc/self/stat").exists():
        return False
    return start_time(pid) != started


def start_time(pid: int) -> str | None:
    """Start of a process in clock ticks since boot, None where there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _machine() -> str:
    """Host name with boot id and process namespace, since containers may share a host name."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            parts.append("unknown")
    return "/".join(parts)
