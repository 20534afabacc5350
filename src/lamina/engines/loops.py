"""What an event loop must not do: wait for a disk, or for whoever holds a lock meanwhile."""

from __future__ import annotations


def must_wait() -> None:
    """What comes next may wait for the disk; nothing was changed yet."""
