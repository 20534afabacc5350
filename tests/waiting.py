"""Waiting for what another thread or process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """The same on a loop, which goes on meanwhile."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.001)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Returns as soon as it holds; raises AssertionError if it never does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
