"""The server that ``lamina demo`` starts and kills."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from lamina.cli.jobs_work import undisturbed
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.client.connecting import Remote

HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 60


class Server:
    """``lamina serve`` on ports that stay the same. Gone when the ``with`` ends, however."""

    def __init__(
        self, data: Path, *flags: str, sync: Sequence[str] = ("--sync", "always"), under: Sequence[str] = ()
    ) -> None:
        """``sync``: none gives the server's own defaults. ``under``: a command that runs it, such as ``prlimit``."""
        self._under = [*under]
        self.workq, self.resp = free_ports(2)
        self._words = ["serve", "--data", str(data), *sync]
        self._words += ["--workq", f"{HOST}:{self.workq}", "--resp", f"{HOST}:{self.resp}"]
        self._words += [*flags, *([] if "--http" in flags else ["--http", "off"])]
        self._process: subprocess.Popen[str] | None = None
        self.took_s = 0.0
        """From the start to the first answer."""

    @property
    def command(self) -> str:
        return " ".join(["lamina", *self._words])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Remote:
        """A new one."""
        from lamina.client.connecting import connect

        return connect(f"lamina://{HOST}:{self.resp}?workq={self.workq}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.kill()

    def start(self) -> None:
        """Raises: LaminaError, with what it said, if it does not come up."""
        began = time.monotonic()
        pipe = subprocess.PIPE
        command = [*self._under, sys.executable, "-m", "lamina", *self._words]
        try:
            with undisturbed():  # an interrupt comes behind it: then there is something to kill
                self._process = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True)  # noqa: S603
            heard = _Heard(self._process, f"resp on {HOST}:{self.resp}")
            if not heard.told.wait(_PATIENCE_S) or not heard.is_open:
                raise LaminaError(f"the server did not start: {' '.join(heard.lines) or 'it says nothing'}")
        except BaseException:
            self.kill()
            raise
        self.took_s = time.monotonic() - began

    def stop(self) -> float:
        """In order. Returns how many seconds that took."""
        assert self._process is not None
        began = time.monotonic()
        self._process.terminate()
        self._process.wait(_PATIENCE_S)
        self._process = None
        return time.monotonic() - began

    def kill(self) -> None:
        """With SIGKILL: it has no chance to do anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Heard:
    """What a server says, taken off its hands: one whose lines nobody reads would come to a stand."""

    def __init__(self, process: subprocess.Popen[str], sign: str) -> None:
        """``sign``: is in the line that says that it is open."""
        self.lines: deque[str] = deque(maxlen=20)
        self.told = threading.Event()
        """It is open, or it has ended."""
        self.is_open = False
        threading.Thread(target=self._listen, args=(process, sign), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], sign: str) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                self.lines.append(line.strip())
                if sign in line:
                    self.is_open = True
                    self.told.set()
        self.told.set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    made = [socket.socket() for _ in range(count)]
    try:
        for each in made:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in made]
    finally:
        for each in made:
            each.close()
