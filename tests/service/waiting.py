"""Waits for something with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], timeout_s: float = 20.0, every_s: float = 0.05) -> T:
    """Return the first true answer of `look`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing within {timeout_s} s")
        time.sleep(every_s)
