"""One HTTP connection, under limits: how many there may be, and how long one may take to ask for something."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES: Final = 16 * 1024
"""Of the first line and the headers of a request."""
LOOK_S: Final = 10.0
"""Who has asked for nothing new in so long is hung up on: also one that sends its request letter by letter, or reads
nothing of the answer."""
MOST: Final = 128
"""Connections at the same time. For one more the oldest goes that is asking for nothing."""


class Visitor(H11Protocol):
    """One connection. ``most`` is set by the door."""

    most = MOST
    _look: asyncio.TimerHandle | None = None
    _seen: object = None
    _unread = 0
    _came = 0.0

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self.most and not self._make_room():
            transport.abort()
            self.transport = transport
            return
        super().connection_made(transport)
        self._came = self.loop.time()
        self._look = self.loop.call_later(LOOK_S, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is None:  # it was turned away
            return
        self._look.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        """Silent ones must not keep out who asks whether the server lives: it would be started anew."""
        silent = [other for other in self.connections if isinstance(other, Visitor) and not other._is_served()]
        if not silent:
            return False
        oldest = min(silent, key=lambda other: other._came)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _is_served(self) -> bool:
        """It has asked for something, to the last byte of the body, and waits for all of the answer."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _look_again(self) -> None:
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        is_reading = not self._unread or self._unread != before
        if self.cycle is self._seen and not (self._is_served() and is_reading):
            self.transport.abort()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(LOOK_S, self._look_again)
