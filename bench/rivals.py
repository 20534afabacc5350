"""Job servers as processes of their own, on a free port and an empty folder; gone at the end, whatever happens."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.runner import Skipped

Address = tuple[str, int]

HOST = "127.0.0.1"
START_SECONDS = 20.0
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def find_beanstalkd() -> str:
    """Raises: Skipped if it is not installed."""
    path = shutil.which("beanstalkd")
    if path is None:
        raise Skipped("needs beanstalkd (Debian: apt install beanstalkd)")
    return path


@contextmanager
def beanstalkd(folder: str, sync_ms: int) -> Iterator[Address]:
    """The real one, with its log in ``folder``. Syncs every write if ``sync_ms`` is 0, else at most that often."""
    port = _free_port()
    words = [find_beanstalkd(), "-l", HOST, "-p", str(port), "-b", folder, "-f", str(sync_ms)]
    with _serving(words, folder, port) as address:
        yield address


@contextmanager
def workq_server(folder: str, sync: str, sync_ms: int | None = None) -> Iterator[Address]:
    """Ours, with its command log in ``folder``."""
    port = _free_port()
    lamina = os.path.join(os.path.dirname(sys.executable), "lamina")
    words = [lamina, "workq-server", "-listen", f"{HOST}:{port}", "-cmdlog-path", folder, "-cmdlog-sync", sync]
    if sync_ms is not None:
        words += ["-cmdlog-sync-int", str(sync_ms)]
    with _serving(words, folder, port) as address:
        yield address


@contextmanager
def stand_in(asked_lines: int, reply: bytes, batched: bool) -> Iterator[Address]:
    """A process that keeps nothing and answers each ``asked_lines`` lines with ``reply``, as a server without work."""
    with socket.create_server((HOST, 0)) as door:
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_answer, args=(door, asked_lines, reply, batched), daemon=True)
        process.start()
        try:
            yield HOST, door.getsockname()[1]
        finally:
            process.kill()
            process.join()


def _answer(door: socket.socket, asked_lines: int, reply: bytes, batched: bool) -> None:
    _die_with_parent()
    clients: dict[int, socket.socket] = {}
    lines: dict[int, int] = {}
    poll = select.epoll()
    poll.register(door.fileno(), select.EPOLLIN)
    while True:
        for handle, _ in poll.poll():
            if handle == door.fileno():
                client, _ = door.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()], lines[client.fileno()] = client, 0
                poll.register(client.fileno(), select.EPOLLIN)
                continue
            client = clients[handle]
            data = client.recv(1 << 16)
            if not data:
                poll.unregister(handle)
                client.close()
                continue
            commands, lines[handle] = divmod(lines[handle] + data.count(b"\n"), asked_lines)
            if batched:
                client.sendall(reply * commands)
            else:
                for _ in range(commands):
                    client.sendall(reply)


@contextmanager
def _serving(words: list[str], folder: str, port: int) -> Iterator[Address]:
    """Run a server while the block runs. It is killed with all its children, and its folder is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    said = f"{folder}.out"
    try:
        with open(said, "wb") as out:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        try:
            _wait_until_it_listens(process, port)
            yield HOST, port
        except Exception as error:
            error.add_note(_last_words(process, words, said))
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.remove(said)


def _die_with_parent() -> None:
    """Also when this process is killed itself, no server stays."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    """Raises: RuntimeError if the server ended or does not listen after a good while."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            if process.poll() is None:  # else somebody else has the port
                return
        time.sleep(0.02)
    raise RuntimeError("the server did not come up")


def _last_words(process: subprocess.Popen[bytes], words: list[str], said: str) -> str:
    with suppress(subprocess.TimeoutExpired):  # it may be about to end, and then how it did is worth knowing
        process.wait(timeout=0.5)
    state = "runs" if process.returncode is None else f"ended with {process.returncode}"
    with open(said, errors="replace") as file:
        return f"{' '.join(words)}: {state}; it said: {file.read()[-1500:].strip() or 'nothing'}"


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as door:
        port: int = door.getsockname()[1]
    return port
