"""SIGHUP: read settings, users and certificates again, let hold what can change, and tell what needs a restart.

All of it is read and checked, by a thread, before any of it is used, by the loop in one turn: a file with a mistake
changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lamina.errors import LaminaError
from lamina.server import handles, notifying
from lamina.server.houses import Served
from lamina.server.listening import Door
from lamina.server.security.gate import Found, Gate
from lamina.server.security.tls import ServerContext, server_context
from lamina.server.settings import Reloaded, Settings

logger = logging.getLogger("lamina.server")


class _Read(NamedTuple):
    """All that was read."""

    settings: Reloaded
    users: Found
    tls: ServerContext | None


class Reload:
    """Of one server; call it on the loop."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Reloaded] | None,
        gate: Gate,
        tls: ServerContext | None,
    ) -> None:
        """``read`` reads the settings anew; None: there are none to read."""
        self._settings = settings
        self._read = read
        self._gate = gate
        self._tls = tls
        self._client_ca = None if settings.tls is None else settings.tls.client_ca
        self.is_late = False
        """It was asked for before there was anything to change."""
        self._served: Sequence[Served] = ()
        self._doors: Sequence[Door] = ()
        self._own_handles = 0
        self._is_over = self._is_asked = False
        self._task: asyncio.Task[None] | None = None

    def use(self, served: Sequence[Served], doors: Sequence[Door], own_handles: int) -> None:
        """What changes will be for."""
        self._served, self._doors, self._own_handles = served, doors, own_handles

    def end(self) -> None:
        """The server stops: nothing is changed any more, and systemd is not told that it is ready."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def __call__(self) -> None:
        """Begin. While one is under way another one follows it: files may have changed since it read them."""
        if self._is_over:
            return
        if not self._doors:
            self.is_late = True
            return
        self._is_asked = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while self._is_asked:
            self._is_asked = False
            notifying.reloading()
            try:
                self._change(await asyncio.to_thread(self._look))
            except LaminaError as error:
                logger.error("reload: nothing was changed: %s", error)
            except Exception:  # a mistake of ours must not stop the server
                logger.exception("reload: nothing was changed")
            notifying.notify(notifying.READY)
        self._task = None

    def _look(self) -> _Read:
        found = Reloaded(settings=self._settings) if self._read is None else self._read()
        tls, fresh = found.settings.tls, None
        if self._tls is not None and tls is not None:
            fresh = server_context(tls.cert, tls.key, tls.client_ca)
            if tls.client_ca != self._client_ca:  # that one needs a restart
                fresh = server_context(tls.cert, tls.key, self._client_ca)
        return _Read(found, self._gate.read(), fresh)

    def _change(self, read: _Read) -> None:
        found, settings = read.settings, read.settings.settings
        users = self._gate.change(read.users)
        if self._tls is not None and read.tls is not None:
            self._tls.renewed = read.tls
        if settings.max_connections != self._settings.max_connections:
            most = handles.connections(settings.max_connections, len(self._doors), self._own_handles)
            for door in self._doors:
                door.max_connections = most
        for door in self._doors:
            door.output.most = settings.max_output_bytes
        for each, door in zip(self._served, self._doors, strict=True):
            each.change(settings, door)
        self._settings = settings
        found.accepted()
        logger.info("reload: %s; %s", ", ".join(found.live) or "no setting changed", users)
        for text in found.later:
            logger.warning("reload: %s needs a restart", text)
        logging.getLogger("lamina").setLevel(settings.log_level.upper())  # the last: what changed was to be told
