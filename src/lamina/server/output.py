"""Answers that clients have not taken: one budget for those of all connections of a server.

What a client does not read stays with the server, beyond what the system keeps for it. Each client is held to little by
itself (client.py); together they may still be too much. Then those who have most are hung up on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from lamina.server.refusals import OUTPUT, Refusals
from lamina.units import MIB, show_bytes

logger = logging.getLogger("lamina.server")


class _Door(Protocol):
    refusals: Refusals


class Slow(Protocol):
    """A client that has not taken all it was sent."""

    door: _Door
    transport: asyncio.Transport | None


class Output:
    """On the loop only; any thread may look."""

    def __init__(self, most: int = 256 * MIB) -> None:
        self.most = most
        self.bytes = 0
        self._of: dict[Any, int] = {}

    def note(self, client: Slow) -> None:
        """It was sent more, or took some, or is gone."""
        transport = client.transport
        has = 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
        self.bytes += has - self._of.pop(client, 0)
        if has:
            self._of[client] = has
        if self.bytes > self.most:
            self._make_room()

    def _make_room(self) -> None:
        for client in list(self._of):  # they are noted when they begin to be slow and when they are no more
            self.bytes += client.transport.get_write_buffer_size() - self._of[client]
            self._of[client] = client.transport.get_write_buffer_size()
        for client in sorted(self._of, key=self._of.__getitem__, reverse=True):
            if self.bytes <= self.most:
                return
            has = self._of.pop(client)
            self.bytes -= has
            client.door.refusals.note(OUTPUT)
            address = client.transport.get_extra_info("peername")
            told = "%s is hung up on: it has not taken %s of answers, and all clients more than %s (max_output_bytes)"
            logger.warning(told, address, show_bytes(has), show_bytes(self.most))
            client.transport.abort()
