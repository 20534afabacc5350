"""A data folder: what ``lamina.open`` gives. Holds named logs, and one thread that commits for all of them."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

from lamina.clock import Clock
from lamina.errors import BadName, BadOption, LaminaError, LogClosed
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.options import LogOptions
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.jobs.api import Jobs

_LONGEST_NAME = 255


def folder_name(name: str) -> str:
    """A name as one path component: letters, digits, ``_``, ``-`` and inner dots stay, all else is percent-encoded.

    Raises: BadName for an empty name, or one too long for the file system.
    """
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raw = b""
    encoded = re.sub(rb"[^A-Za-z0-9_.-]", lambda found: b"%%%02X" % found[0][0], raw)
    if encoded.startswith(b"."):
        encoded = b"%2E" + encoded[1:]
    if not encoded or len(encoded) > _LONGEST_NAME:
        raise BadName(
            f"{name[:40]!r} cannot name a log",
            hint=f"use 1 to {_LONGEST_NAME} bytes, counting three for each that is not a letter, digit, _ - or .",
        )
    return encoded.decode()


class Data:
    """A data folder, open for writing.

    Threads: safe from any thread.
    """

    def __init__(
        self, folder: str, *, files: Files | None = None, clock: Clock | None = None, jobs: LogOptions | None = None
    ) -> None:
        """Use ``lamina.open``."""
        self._jobs_options = jobs
        self.folder = folder
        self._files = RealFiles() if files is None else files
        self._clock = clock
        self._committer = Committer()
        self._lock = threading.Lock()
        self._logs: dict[str, Log] = {}
        self._jobs: Jobs | None = None
        self._is_closed = False

    def log(self, name: str, options: LogOptions | None = None, *, salvage: bool = False) -> Log:
        """The log of that name, opened (and made) at the first call. It is closed with the data folder.

        A log that failed (a sync error) is closed and opened anew.
        Raises: BadName; LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull; LogClosed.
        """
        folder = join(join(self.folder, "logs"), folder_name(name))
        with self._lock:
            if self._is_closed:
                raise LogClosed(f"{self.folder}: the data folder is closed", hint="open it again")
            log = self._logs.get(name)
            if log is not None and log.failure is not None:
                log.close()
                log = None
            if log is not None and options is not None and options != log.options:
                raise BadOption(f"{name!r} is open with other options", hint="close the data folder first")
            if log is None:
                log = self._logs[name] = Log.open(
                    folder,
                    options=options,
                    files=self._files,
                    clock=self._clock,
                    committer=self._committer,
                    salvage=salvage,
                )
            return log

    @property
    def jobs(self) -> Jobs:
        """The jobs of the folder, opened (and made) at the first use. They are closed with the data folder.

        Raises: LogLocked if a server has them; Corruption, WrongFormat; DiskError, DiskFull; LogClosed.
        """
        with self._lock:
            if self._is_closed:
                raise LogClosed(f"{self.folder}: the data folder is closed", hint="open it again")
            if self._jobs is None:
                from lamina.engines.jobs.api import Jobs
                from lamina.engines.jobs.engine import JobEngine
                from lamina.log.naming import RESERVE
                from lamina.log.reserve import Reserve

                engine = JobEngine.open(
                    join(self.folder, "jobs"),
                    options=self._jobs_options,
                    files=self._files,
                    clock=self._clock,
                    committer=self._committer,
                )
                engine.reserve = Reserve(self._files, join(engine.folder or "", RESERVE), engine.clock)
                self._jobs = Jobs(engine)
            return self._jobs

    def close(self) -> None:
        """Close everything in order. Raises: the first error, after all was closed."""
        errors = []
        with self._lock:
            self._is_closed = True
            opened: list[Log | Jobs] = [*self._logs.values()]
            if self._jobs is not None:
                opened.append(self._jobs)
            for one in opened:
                try:
                    one.close()
                except LaminaError as error:
                    errors.append(error)
            self._logs.clear()
            self._jobs = None
        self._committer.stop()
        if errors:
            raise errors[0]

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def open(
    folder: str | os.PathLike[str],
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    jobs: LogOptions | None = None,
) -> Data:
    """Open a data folder, making it if need be. ``jobs`` are the settings of its command log."""
    return Data(os.fspath(folder), files=files, clock=clock, jobs=jobs)
