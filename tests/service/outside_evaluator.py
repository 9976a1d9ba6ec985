"""An evaluator outside chipfit: a process with a formula of its own that judges trials until there are none."""

from __future__ import annotations

import sys
import time

import httpx


def main(url: str, client: str, judged: int) -> None:
    """Judge `judged` trials, four at a time; then hang with trials on loan, as a crashed machine does."""
    done = 0
    while True:
        trials = httpx.post(f"{url}:suggest", params={"client": client, "count": 4}, timeout=30.0).json()["items"]
        if not trials:
            return
        outcomes = [
            {"number": t["number"], "metrics": {"latency_s": latency_s(t["design"])}, "constraints": {"area": -0.1}}
            for t in trials
        ]
        if done + len(outcomes) > judged:
            print("hanging", flush=True)
            time.sleep(60.0)
        httpx.post(f"{url}:complete", json={"client": client, "trials": outcomes}, timeout=30.0).raise_for_status()
        done += len(outcomes)


def latency_s(design: dict[str, float]) -> float:
    return 1e12 / (design["n_cores"] * design["clock_hz"] * design["memory_stacks"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
