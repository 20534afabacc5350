"""One connection to a workq server: a command out, its answer in, refusals as errors."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from io import BufferedReader
from typing import Final, TypeVar

from lamina.errors import (
    BadJob,
    Disconnected,
    DiskFull,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LaminaError,
    NotLeased,
    StorageError,
    WireError,
)

T = TypeVar("T")

_LONGEST_LINE: Final = 1 << 16
_LARGEST_BODY: Final = 1 << 24  # far above what a server may send; a wrong size must not take all memory


_REFUSALS: Final[dict[str, tuple[type[LaminaError], str]]] = {
    "CLIENT-ERROR Duplicate job": (DuplicateJob, "its id, or its unique key, is taken"),
    "CLIENT-ERROR Duplicate result": (DuplicateResult, "it was completed or failed before"),
    "CLIENT-ERROR Not leased": (NotLeased, "its time to run has passed, or it is done"),
    "CLIENT-ERROR Not failed": (BadJob, "only a failed job can be driven again"),
    "CLIENT-ERROR Invalid Time": (BadJob, "its life would be over before it starts: time + ttl is past"),
    "CLIENT-ERROR Unknown command": (WireError, "the server does not know it: is it an older one?"),
    "SERVER-ERROR Too many connections": (Disconnected, "try again later"),
    "SERVER-ERROR Disk full, nothing was changed, try again": (DiskFull, "make room; writing resumes by itself"),
}


def refusal(answer: str) -> LaminaError:
    """The error that an answer with a leading ``-`` stands for."""
    code, _, text = answer[1:].partition(" ")
    if code == "NOT-FOUND":
        return JobNotFound("the server has no such job or queue")
    if (known := _REFUSALS.get(answer[1:])) is not None:
        return known[0](text, hint=known[1])
    if code == "SERVER-ERROR":
        return StorageError(f"the server says: {text}", hint="its disk refused to write; see what the server reports")
    return BadJob(f"the server says: {text or code}")


class Wire:
    """Connects at the first command, and anew after an error of the connection; no command is sent twice.

    Threads: one at a time.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._host, self._port, self._timeout = host, port, timeout
        self._socket: socket.socket | None = None
        self._file: BufferedReader | None = None

    def __str__(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def close(self) -> None:
        for each in (self._file, self._socket):
            with contextlib.suppress(OSError):
                if each is not None:
                    each.close()
        self._socket = self._file = None

    def ask(self, line: str, payload: bytes | None, wait_s: float, read: Callable[[int], T]) -> T | None:
        """Send a command and let ``read`` take what follows ``+OK n``. None for ``-TIMEOUT``. Raises: the refusal."""
        try:
            self._connect().settimeout(wait_s + self._timeout)
            answer = self._exchange(line.encode() + b"\r\n" + (b"" if payload is None else payload + b"\r\n"))
            if answer.startswith("+OK"):
                return read(int(answer[3:] or 0))
            if not answer.startswith("-"):
                raise ValueError(answer)
        except OSError as error:
            self.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else f"the connection broke: {error}"
            hint = "whether the command was done is not known"
            raise Disconnected(f"{self}: {reason}", hint=hint, server=str(self)) from error
        except ValueError as error:
            self.close()
            hint = "check the address: is it a workq server that listens there?"
            raise WireError(f"{self}: no answer of a workq server: {error}"[:200], hint=hint) from error
        except BaseException:  # interrupted in the middle: what is left would be taken for the next answer
            self.close()
            raise
        if answer == "-TIMEOUT":
            return None
        problem = refusal(answer)
        if isinstance(problem, Disconnected):
            self.close()
        raise problem

    def _connect(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self._host, self._port), self._timeout)
            except (OSError, UnicodeError) as error:
                reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", error)
                hint = 'check the address, or start a server with "lamina serve --data DIR"'
                raise Disconnected(f"{self}: cannot connect: {reason}", hint=hint, server=str(self)) from error
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._file = self._socket.makefile("rb")
        return self._socket

    def _exchange(self, command: bytes) -> str:
        assert self._socket is not None
        try:
            self._socket.sendall(command)
        except (BrokenPipeError, ConnectionResetError):
            # A server that has too many connections says so before it hangs up; read that.
            with contextlib.suppress(OSError, ValueError):
                return self.line()
            raise
        return self.line()

    def line(self) -> str:
        """The next line of the answer."""
        assert self._file is not None
        return self._whole(self._file.readline(_LONGEST_LINE)).decode()

    def body(self, size: int) -> bytes:
        """So many bytes of the answer."""
        assert self._file is not None
        if not 0 <= size <= _LARGEST_BODY:
            raise ValueError(f"a body of {size} bytes")
        data = self._file.read(size + 2)
        if len(data) < size + 2:
            raise ConnectionError("the server hung up")
        return self._whole(data)

    @staticmethod
    def _whole(data: bytes) -> bytes:
        if not data:
            raise ConnectionError("the server hung up")
        if not data.endswith(b"\r\n"):
            raise ValueError(f"{data[:60]!r}")
        return data[:-2]
