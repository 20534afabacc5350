"""No loop of a server may wait for a disk, or work for long: neither those that tests run in this process, nor those of
the servers they start (prefork.py)."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

from lamina.testing import Guard
from lamina.testing.guard import SLOW

GUARD = Guard()
GUARD.install()
_handle, _name = tempfile.mkstemp(prefix="lamina-guard-")
os.close(_handle)
_OF_SERVERS = Path(_name)
os.environ["LAMINA_GUARD"] = _name
atexit.register(_OF_SERVERS.unlink, missing_ok=True)


def take() -> list[str]:
    """What was found since the last call, here and by servers."""
    found = GUARD.take()
    if _OF_SERVERS.stat().st_size:
        found += _OF_SERVERS.read_text().split("\0")[:-1]
        _OF_SERVERS.write_text("")
    return found


def is_of_time(finding: str) -> bool:
    """It says that a callback took long, not that it did what it must not."""
    return finding.endswith(SLOW)
