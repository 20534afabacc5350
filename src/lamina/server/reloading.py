"""SIGHUP: read settings, users and certificates again, let hold what can change, and tell what needs a restart.

All of it is read and checked before any of it is used: a file with a mistake changes nothing.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence

from lamina.errors import LaminaError
from lamina.server import handles, notifying
from lamina.server.houses import Served
from lamina.server.listening import Door
from lamina.server.security.gate import Gate
from lamina.server.security.tls import renew, server_context
from lamina.server.settings import Reloaded, Settings

logger = logging.getLogger("lamina.server")


class Reload:
    """Of one server; call it on the loop."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Reloaded] | None,
        gate: Gate,
        tls: ssl.SSLContext | None,
    ) -> None:
        """``read`` reads the settings anew; None: there are none to read."""
        self._settings = settings
        self._read = read
        self._gate = gate
        self._tls = tls
        self.is_late = False
        """It was asked for before there was anything to change."""
        self._served: Sequence[Served] = ()
        self._doors: Sequence[Door] = ()
        self._own_handles = 0
        self._is_over = False

    def use(self, served: Sequence[Served], doors: Sequence[Door], own_handles: int) -> None:
        """What changes will be for."""
        self._served, self._doors, self._own_handles = served, doors, own_handles

    def end(self) -> None:
        """The server stops: nothing is changed any more, and systemd is not told that it is ready."""
        self._is_over = True

    def __call__(self) -> None:
        if self._is_over:
            return
        if not self._doors:
            self.is_late = True
            return
        notifying.reloading()
        try:
            self._reload()
        except LaminaError as error:
            logger.error("reload: nothing was changed: %s", error)
        except Exception:  # a mistake of ours must not stop the server
            logger.exception("reload: nothing was changed")
        finally:
            notifying.notify(notifying.READY)

    def _reload(self) -> None:
        found = Reloaded(settings=self._settings) if self._read is None else self._read()
        settings, tls = found.settings, found.settings.tls
        if self._tls is not None and tls is not None:
            server_context(tls.cert, tls.key, tls.client_ca)  # to see that it is right
        users = self._gate.reload()
        if self._tls is not None and tls is not None:
            renew(self._tls, tls.cert, tls.key)
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
