"""The newest counters, kept so that they go on after a restart, whatever ended the server.

A log of its own, ``<data>/logs/lamina.counters``: all of them in the first record of a file, and behind it what
changed. When a file has become long another one is begun, and once its first record is synced the old one goes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from lamina.log.sync import Level
from lamina.log.teardown import Teardown
from lamina.server.history.keeping import KeptLog
from lamina.units import KIB

NAME: Final = "lamina.counters"
_LONG: Final = 512 * KIB


class _Stored(msgspec.Struct, omit_defaults=True):
    all: dict[str, float] | None = None
    changed: dict[str, float] = {}


_decode: Final = msgspec.json.Decoder(_Stored).decode


class KeptCounters:
    """Threads: safe from any."""

    def __init__(self, log: KeptLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._known: dict[str, float] = {}
        self._written: dict[str, float] | None = None  # None: all of them have to be written
        self._bytes = 0
        with Teardown(log.folder) as teardown:
            teardown.later(log.close)
            self._read()
            teardown.cancel()

    def _read(self) -> None:
        for record in self._log.records():
            try:
                stored = _decode(record.payload)
            except msgspec.DecodeError:
                continue
            if stored.all is not None:
                self._known = stored.all
            self._known.update(stored.changed)

    @property
    def newest(self) -> dict[str, float]:
        """The last that were noted, in this life or the one before."""
        with self._lock:
            return dict(self._known)

    def note(self, counters: Mapping[str, float]) -> None:
        """Durability: written when it returns, so that they survive a killed process; synced within a second."""
        with self._lock:
            # Two who note may come in another order than they counted: what one of them has told stays told.
            known = self._known
            self._known = {name: max(value, known.get(name, value)) for name, value in counters.items()}
            if self._written is None or self._bytes > _LONG:
                self._write_all()
            else:
                self._write_changed(self._written)

    def _write_all(self) -> None:
        self._log.begin_segment()
        payload = msgspec.json.encode(_Stored(all=self._known))
        # The files before it go, so it has to be there for good.
        if self._log.append(payload, level=Level.SYNCED):
            self._written, self._bytes = self._known, 0
            self._log.shed(keep_newest=True)
        else:
            self._written = None

    def _write_changed(self, written: Mapping[str, float]) -> None:
        changed = {name: value for name, value in self._known.items() if written.get(name) != value}
        if not changed:
            return
        payload = msgspec.json.encode(_Stored(changed=changed))
        is_kept = self._log.append(payload)
        self._written = self._known if is_kept else None
        self._bytes += len(payload)

    def close(self) -> None:
        with self._lock:
            self._log.close()
