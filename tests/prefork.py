"""The ``lamina`` command in a process of its own, at once: forked from one that has loaded it and waits.

To start an interpreter and to import the command line takes longer than what most tests then do with it, and there are
hundreds of them. The forked process is one like any other: arguments, environment, current folder, standard streams,
exit code and signals are its own, and it ends as any does. It is gone when the test run is, however that ends.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

_MOST = 1 << 20
_PRELOADED = ("asyncio", "rich.table", "lamina.data", "lamina.server.app", "lamina.testing")
"""What the commands import once they run. Only those that start no thread: it would not be there after a fork."""


class Process:
    """As ``subprocess.Popen``, of the command with those arguments."""

    def __init__(
        self,
        words: Sequence[object],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        files: int | None = None,
    ) -> None:
        """``files``: how many file handles it may have."""
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        asked = {
            "words": [str(word) for word in words],
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or os.getcwd()),
            "files": files,
        }
        with open(os.devnull, "r+b") as nothing:
            theirs = [nothing.fileno() if stream is subprocess.DEVNULL else stream for stream in (stdin, stderr)]
            reading, writing = os.pipe()
            self._told, telling = os.pipe()
            try:
                streams = [theirs[0], writing if stdout is subprocess.PIPE else stdout, theirs[1]]
                handles = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
                socket.send_fds(_line(), [json.dumps(asked).encode()], [*handles, telling])
            finally:
                os.close(writing)
                os.close(telling)
        if stdout is subprocess.PIPE:
            self.stdout = os.fdopen(reading, "rb")
        else:
            os.close(reading)
        self._file = os.fdopen(self._told, "rb")
        self.pid = int(self._file.readline())

    def poll(self) -> int | None:
        """Its exit code, as of a process of ``subprocess``; None while it runs."""
        if self.returncode is None and select.select([self._file], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it ends."""
        if self.returncode is None:
            if not select.select([self._file], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["lamina"], timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        said = self._file.readline()
        self._file.close()
        assert said, "the process that forks is gone"
        self.returncode = os.waitstatus_to_exitcode(int(said))

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run(*words: object, input: bytes = b"", timeout: float = 120, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """The command from its start to its end, with what it wrote."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input)
        given.seek(0)
        process = Process(words, stdin=given, stdout=out, stderr=err, **more)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([str(word) for word in words], process.wait(), out.read(), err.read())


def run_text(*words: object, input: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """As ``run``, in text."""
    done = run(*words, input=input.encode(), **more)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


# -- the process that forks ----------------------------------------------------------------------------------------

_lines: dict[int, socket.socket] = {}
"""To that of this process: a fork of it would want one of its own."""


def _line() -> socket.socket:
    """Where it listens. Started when it is needed for the first time."""
    if os.getpid() not in _lines:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, its):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        command = [sys.executable, __file__, str(its.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno()]
        )
        its.close()
        _lines[os.getpid()] = ours
        atexit.register(_hang_up, ours, process)
    return _lines[os.getpid()]


def _hang_up(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    process.wait()


def _serve(line: socket.socket) -> None:
    """Fork whenever that is asked for. Returns in the forked process, ready to run the command."""
    running: dict[int, int] = {}
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_who_ended(running)
        if line.fileno() not in ready:
            continue
        said, handles, _, _ = socket.recv_fds(line, _MOST, 4)
        if not said:
            sys.exit()  # and with this process go all it has forked
        *streams, telling = handles
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.close()
            for handle, stream in enumerate(streams):
                os.dup2(stream, handle)
            for handle in (woken, waking, *handles, *running.values()):
                os.close(handle)
            _become(json.loads(said))
            return
        running[pid] = telling
        os.write(telling, b"%d\n" % pid)
        for stream in streams:
            os.close(stream)


def _tell_who_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody wants to know
            os.write(told, b"%d\n" % status)
        os.close(told)


def _become(asked: dict[str, Any]) -> None:
    die_with_parent = 1
    ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
    if asked["files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (asked["files"], asked["files"]))
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    os.chdir(asked["cwd"])
    sys.argv = ["lamina", *asked["words"]]


def _watch_loops() -> None:
    """Findings go to the file that conftest.py named. The loop is asyncio's own then."""
    report = os.environ.pop("LAMINA_GUARD", "")
    if report and "serve" in sys.argv[1:2]:
        from lamina.server import app
        from lamina.testing import Guard

        def tell(finding: str) -> None:
            with open(report, "a") as file:
                file.write(f"{finding}\0")

        app._runner = lambda: asyncio.run  # type: ignore[assignment]
        guard = Guard(tell, is_server=True)
        guard.budget_s = float(os.environ.pop("LAMINA_GUARD_BUDGET_S", guard.budget_s))
        guard.install()


if __name__ == "__main__":
    from importlib import import_module

    from lamina.cli import main as command_line

    asked_on = socket.socket(fileno=int(sys.argv[1]))
    sys.path.pop(0)  # the tests are none of its modules
    sys.argv = ["lamina", "--help"]
    command_line._run()  # imports what every command does
    for module in _PRELOADED:
        import_module(module)
    sys.stdout.flush()
    _serve(asked_on)
    _watch_loops()
    command_line.main()
