"""How the service behaves under load: answer times of evaluations, readers of events, memory; it stops by itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

PERCENTILES = (50, 95, 99)


async def evaluation_times_s(url: str, documents: list[dict[str, Any]], rate_per_s: float) -> list[float]:
    """
    Send one evaluation after another at a fixed rate, whether or not the ones before are answered.

    Returns
    -------
    list of float
        Time from the moment a request was due until its answer [s].
    """
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=url, timeout=60.0, limits=limits) as client:
        began_s = time.perf_counter()

        async def send(i: int) -> float:
            due_s = began_s + i / rate_per_s
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            answer = await client.post("/v1/evaluations", json=documents[i])
            answer.raise_for_status()
            return time.perf_counter() - due_s

        return list(await asyncio.gather(*(send(i) for i in range(len(documents)))))


async def read_events(url: str, path: str, readers: int) -> list[int]:
    """Follow one study with many readers at once; return how many events each has seen when the study ended."""
    limits = httpx.Limits(max_connections=readers + 10)
    async with httpx.AsyncClient(base_url=url, timeout=300.0, limits=limits) as client:

        async def follow() -> int:
            seen = 0
            async with client.stream("GET", f"{path}/events") as stream:
                async for line in stream.aiter_lines():
                    seen += line.startswith("id: ")
            return seen

        return list(await asyncio.gather(*(follow() for _ in range(readers))))


async def send_many(url: str, paths: list[str], n_requests: int, at_once: int) -> None:
    """Send GET requests over and over, some at once."""
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as client:

        async def send(first: int) -> None:
            for i in range(first, n_requests, at_once):
                (await client.get(paths[i % len(paths)])).raise_for_status()

        await asyncio.gather(*(send(first) for first in range(at_once)))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM [B]."""
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in fields if line.startswith("VmRSS:")).split()[1])


def percentiles_s(times_s: list[float]) -> dict[str, float]:
    """Percentiles of times by name [s]."""
    return {f"p{p}_s": float(np.percentile(times_s, p)) for p in PERCENTILES}
