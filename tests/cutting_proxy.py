"""A proxy that cuts connections at the worst moments, so that a client cannot know what was done."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from contextlib import suppress

HOST = "127.0.0.1"
EAT = "eat"
"""Hang up when a command comes; the server never sees it."""
LOSE = "lose"
"""Let the server do it, and hang up instead of passing on the answer."""


class CuttingProxy:
    """Stands before a server on ``port``. What happens to the next commands is in ``plan``; then all goes through."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.plan: deque[str] = deque()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> CuttingProxy:
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)
        return self

    def __exit__(self, *problem: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Hang up on everybody."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection((HOST, self._server)) as server:
            with self._lock:
                self._open |= {client, server}
            try:
                self._pump(client, server)
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        fate: str | None = None
        while True:
            ready = select.select([client, server], [], [])[0]
            if client in ready:
                if not (data := client.recv(1 << 16)):
                    return
                if fate is None:
                    fate = self.plan.popleft() if self.plan else "pass"
                if fate == EAT:
                    return
                server.sendall(data)
            if server in ready:
                if not (data := server.recv(1 << 16)) or fate == LOSE:
                    return
                client.sendall(data)
                fate = None
