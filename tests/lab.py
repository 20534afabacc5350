"""A log on a disk in memory, with verbs for what tests do to it."""

from __future__ import annotations

from lamina.log import Level, Log, LogOptions
from lamina.log.files import Files
from lamina.log.formats import PLAIN, Format
from lamina.log.naming import NUMBERED, Family
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

FOLDER = "data"


class Lab:
    def __init__(self, *, family: Family = NUMBERED, format: Format = PLAIN, **options: object) -> None:
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.clock = ManualClock()
        self.family, self.format = family, format
        self.options = LogOptions(**options)  # type: ignore[arg-type]
        self.log = self.open()

    def open(self, files: Files | None = None, **more: object) -> Log:
        return Log.open(
            FOLDER,
            files=files or self.files,
            clock=self.clock,
            family=self.family,
            format=self.format,
            options=self.options,
            threaded=False,
            **more,  # type: ignore[arg-type]
        )

    def append(self, *payloads: bytes) -> list[int]:
        """Append each with a call of its own, synced; returns their positions."""
        return [self.log.append(payload, until=Level.SYNCED) for payload in payloads]

    def reopen(self, **more: object) -> Log:
        """Close in order and open again."""
        self.log.close()
        self.log = self.open(**more)
        return self.log

    def crash(self) -> None:
        """The process is killed: what was written stays, locks are gone, nothing is closed in order."""
        self.disk = MemoryFiles(self.disk.contents())
        self.files = FaultyFiles(self.disk)

    def restart(self, **more: object) -> Log:
        """Crash and open again."""
        self.crash()
        self.log = self.open(**more)
        return self.log

    def payloads(self) -> list[bytes]:
        return [record.payload for record in self.log.reader.read()]

    def names(self, suffix: str = ".log") -> list[str]:
        return sorted(name for name in self.disk.list(FOLDER) if name.endswith(suffix))

    def data(self, name: str) -> bytearray:
        """The bytes of a file, to be read or damaged in place."""
        return self.disk.names[f"{FOLDER}/{name}"].data

    @property
    def newest(self) -> bytearray:
        return self.data(self.names()[-1])

    def forget_indexes(self) -> None:
        for name in self.disk.list(FOLDER):
            if name.endswith(".index"):
                self.disk.remove(f"{FOLDER}/{name}")
