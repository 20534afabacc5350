"""Tells systemd (``Type=notify``) where the server is in its life. Without systemd it does nothing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*lines: str) -> None:
    """Such as ``READY=1`` or ``STATUS=...``. Nobody who listens is no error."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    path = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto("\n".join(lines).encode(), path)


def reloading() -> None:
    """Followed by ``READY`` when it is done."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
