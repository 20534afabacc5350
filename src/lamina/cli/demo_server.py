"""The processes that ``lamina demo`` starts and kills: a real server, and programs that use it."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path
from typing import IO, Final, Self

from lamina.cli.jobs_work import undisturbed
from lamina.errors import LaminaError

PATIENCE_S: Final = 60
HOST: Final = "127.0.0.1"


class Program:
    """A Python process. It is gone when the ``with`` ends, however that ends."""

    def __init__(self, *words: str | Path) -> None:
        """``words`` behind ``python``."""
        self._words = [sys.executable, *map(str, words)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        try:
            with undisturbed():
                self._process = subprocess.Popen(self._words, stdout=pipe, stderr=subprocess.STDOUT, text=True)  # noqa: S603
            self._has_started()
        except BaseException:
            self.kill()
            raise
        return self

    def _has_started(self) -> None:
        """What else has to be so before it can be used."""

    def __exit__(self, *problem: object) -> None:
        self.kill()

    @property
    def said(self) -> IO[str]:
        """What it prints."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout

    def end(self) -> None:
        """With SIGKILL: it has no chance to do anything. What it said before can still be read."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """The same, and nobody listens to it any more."""
        self.end()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


class Server(Program):
    """``lamina serve`` with one door, ``workq`` or ``resp``, and sync ``always``."""

    def __init__(self, data: Path, door: str, *flags: str) -> None:
        words = ["-m", "lamina", "serve", "--data", str(data), "--sync", "always"]
        for each in ("workq", "resp"):
            words += [f"--{each}", f"{HOST}:0" if each == door else "off"]
        super().__init__(*words, *flags)
        self._door = door
        self.port = 0

    def _has_started(self) -> None:
        """It says so in one line, with the port; warnings of what the one before left may come first."""
        said: list[str] = []
        while select.select([self.said], [], [], PATIENCE_S)[0] and (line := self.said.readline()):
            said.append(line.strip())
            port = line.partition(f"{self._door} on {HOST}:")[2]
            if port:
                self.port = int(port.split(",")[0])
                return
        raise LaminaError(f"the server did not start: {' '.join(said) or 'it says nothing'}")
