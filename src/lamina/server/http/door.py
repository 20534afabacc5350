"""The HTTP door: listening sockets, and a thread whose loop answers.

It listens from the moment it is made, so that a port in use is told there and then, to whoever starts the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lamina.errors import BadOption, DiskError, MissingExtra
from lamina.log.teardown import Teardown
from lamina.server.life import Life
from lamina.server.socket_file import SocketFile

if TYPE_CHECKING:
    from uvicorn import Config

    from lamina.server.http.app import Site

logger = logging.getLogger("lamina.server")

INSTALL: Final = 'pip install "lamina[server]"'
_BACKLOG: Final = 100  # more makes asyncio's accept loop spin when file handles run out
_HANDSHAKE_S: Final = 10.0
_LAST_ANSWERS_S: Final = 1.0
_QUIET_S: Final = 10.0
_STOP_S: Final = 5.0
_THREADS: Final = 32
_TURNS: Final = 3  # of the loop, until all sockets that were closed are so


def is_installed() -> bool:
    """The packages of the door are there. It loads none of them."""
    return all(
        importlib.util.find_spec(name) is not None for name in ("starlette", "uvicorn", "jinja2", "prometheus_client")
    )


class HttpDoor:
    """Open from ``start`` to ``close``. Threads: its own answers; these methods are for the one that made it."""

    def __init__(
        self,
        life: Life,
        host: str = "127.0.0.1",
        port: int = 9980,
        *,
        unix: str | None = None,
        tls: ssl.SSLContext | None = None,
        site: Callable[[], Site] | None = None,
        max_connections: int = 128,
    ) -> None:
        """Take the address: ``host`` and ``port`` (0: any that is free), or the path of a socket, ``unix``.

        ``site`` makes what there is beside health; it is called by the thread of the door, for it may take a while.
        Raises: MissingExtra; DiskError if another has the address; BadOption if there is no such address.
        """
        if not is_installed():
            raise MissingExtra("the HTTP door needs packages that are not installed", hint=INSTALL)
        self._life, self._tls = life, tls
        self._site, self._most = site, max_connections
        self._file = None if unix is None else SocketFile(unix)
        self._sockets = _listen(host, port) if self._file is None else [self._file.socket]
        self._sockets[0].listen(_BACKLOG)
        self.port = 0 if unix is not None else int(self._sockets[0].getsockname()[1])
        self.shown = f"unix:{unix}" if unix is not None else _show(host or "*", self.port)
        """The address, for people."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_open = threading.Event()
        self._quiet_until = 0.0
        self._problem: BaseException | None = None

    def start(self) -> HttpDoor:
        """Answer from now on. Raises: what keeps it from answering."""
        self._thread = threading.Thread(target=self._run, name="lamina-http", daemon=True)
        self._thread.start()
        self._is_open.wait()
        if self._problem is not None:
            self.close()
            raise self._problem
        return self

    def close(self) -> None:
        """Let go of the address; answers that are on their way are given a moment."""
        thread, self._thread = self._thread, None
        with Teardown(self.shown) as teardown:
            if thread is not None:
                loop, stop = self._loop, self._stop
                if loop is not None and stop is not None:
                    with contextlib.suppress(RuntimeError):  # it has ended by itself
                        loop.call_soon_threadsafe(stop.set)
                teardown.step(partial(thread.join, _STOP_S))
            for each in self._sockets:
                teardown.step(each.close)
            if self._file is not None:
                teardown.step(self._file.close)

    def __enter__(self) -> HttpDoor:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve(self._config()))
        except BaseException as error:
            if self._is_open.is_set():
                logger.error("the HTTP door closed: %s", error)
            self._problem = error
        finally:
            self._is_open.set()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Now and then only: without file handles, asyncio has something to say for each who waits to be let in."""
        if loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + _QUIET_S
            logger.warning("the HTTP door: %s: %r", context.get("message"), context.get("exception"))

    def _config(self) -> Config:
        """Of uvicorn, loaded: what it imports takes long, so this comes before the loop."""
        import anyio
        import uvicorn

        from lamina.server.http import app
        from lamina.server.http.visitor import HEAD_BYTES, Visitor

        config = uvicorn.Config(
            app.build(self._life, self._site() if self._site is not None else app.Site()),
            http=type("Visitor", (Visitor,), {"most": self._most}),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        config.load()
        anyio.run(anyio.sleep, 0)  # else its greater part is loaded for the first stream, on the loop
        return config

    async def _serve(self, config: Config) -> None:
        from uvicorn.server import ServerState

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._complain)
        # Many: they wait for disks and locks, and no more than a few of them work for one user (operations.py).
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="lamina-http"))
        state = ServerState()

        def visitor() -> asyncio.Protocol:
            return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

        handshake_s = _HANDSHAKE_S if self._tls is not None else None
        listeners = [
            await self._loop.create_server(
                visitor, sock=each, ssl=self._tls, backlog=_BACKLOG, ssl_handshake_timeout=handshake_s
            )
            for each in self._sockets
        ]
        self._is_open.set()
        await self._stop.wait()
        # A connection that is just being let in must not meet a listener that is closed: asyncio would lose its socket.
        end = self._loop.time() + _LAST_ANSWERS_S
        while (fresh := asyncio.all_tasks() - {asyncio.current_task()} - state.tasks) and self._loop.time() < end:
            await asyncio.wait(fresh, timeout=_LAST_ANSWERS_S)
        for listener in listeners:
            listener.close()
        if state.tasks:
            await asyncio.wait(set(state.tasks), timeout=_LAST_ANSWERS_S)
        for connection in list(state.connections):
            connection.transport.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def _listen(host: str, port: int) -> list[socket.socket]:
    """One socket for each address that the host has, all on the same port."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadOption(f"{host!r}: there is no such address", hint="give HOST:PORT, such as 127.0.0.1:9980") from error
    taken: list[socket.socket] = []
    for family, kind, protocol, _, where in dict.fromkeys(found):
        try:
            each = socket.socket(family, kind, protocol)
        except OSError:
            continue  # the machine has no such addresses, IPv6 say
        taken.append(each)
        try:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((where[0], port, *where[2:]))
            each.listen(_BACKLOG)
        except OSError as error:
            for one in taken:
                one.close()
            raise _in_use(_show(host or "*", port), error) from error
        port = each.getsockname()[1]  # of the first, if any would do
    if not taken:
        raise BadOption(f"{host!r}: this machine cannot listen there", hint="give 127.0.0.1:9980")
    return taken


def _in_use(shown: str, error: OSError) -> DiskError:
    hint = "is another server running there? name another one with --http, or --http off"
    return DiskError(f"{shown}: cannot listen: {error.strerror or error}", hint=hint)


def _show(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
