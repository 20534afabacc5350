"""A server's life: open the engine, open the doors, wait for the signal, let everything out in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.errors import BadOption, DiskError
from lamina.log.files import join
from lamina.log.naming import RESERVE
from lamina.log.options import LogOptions
from lamina.log.reserve import SIZE, Reserve
from lamina.server.workq.door import WorkqDoor

_OWN_HANDLES = 32  # for log files, the loop and what else is open
_BACKLOG = 100  # more makes asyncio's accept loop spin when file handles run out


@dataclass(frozen=True, slots=True)
class Address:
    """Where a door listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """``HOST:PORT``, ``[IPv6]:PORT`` or ``:PORT``. Raises: BadOption."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise BadOption(f"{text!r} is no address", hint="give HOST:PORT, such as 127.0.0.1:9922")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What to serve, and where."""

    workq: Address
    jobs_folder: str | None
    """None: jobs are kept in memory only."""
    jobs_log: LogOptions
    clean_ms: int = 300_000
    max_connections: int = 10_000
    reserve_bytes: int = SIZE
    """Room that is kept for a full disk; 0: none."""


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. ``say`` gets one line when the doors are open.

    Durability: an orderly stop syncs everything. Raises: what opening the jobs does; DiskError if a door cannot open.
    """
    engine = JobEngine.open(settings.jobs_folder, options=settings.jobs_log)
    upkeep = Upkeep(engine, clean_ms=settings.clean_ms)
    try:
        if settings.jobs_folder is not None and settings.reserve_bytes:
            engine.reserve = Reserve(
                engine.files, join(settings.jobs_folder, RESERVE), engine.clock, settings.reserve_bytes
            )
        upkeep.start()
        _spare_the_collector()
        _runner()(_serve(engine, settings, say))
    finally:
        upkeep.stop()
        upkeep.checkpoint_at_stop()
        engine.close()


async def _serve(engine: JobEngine, settings: Settings, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    door = WorkqDoor(engine, max_connections=_connections(settings.max_connections))
    where = settings.workq
    try:
        listener = await loop.create_server(door, where.host or None, where.port, backlog=_BACKLOG)
    except OSError as error:
        raise DiskError(
            f"{where}: cannot listen: {error.strerror or error}", hint="is another server running there?"
        ) from error
    port = listener.sockets[0].getsockname()[1]
    kept = settings.jobs_folder or "memory only"
    say(f"lamina: workq on {Address(where.host or '*', port)}, jobs in {kept}, sync {settings.jobs_log.sync}")
    try:
        await stopped.wait()
    finally:
        listener.close()
        await door.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listener.wait_closed(), 1)


def _connections(wanted: int) -> int:
    """As many as file handles allow: those of the log must not run out because clients took them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OWN_HANDLES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = max(min(wanted, soft - _OWN_HANDLES), 1)
    if allowed < wanted:
        why = f"only {soft} file handles are allowed (ulimit -n)"
        sys.stderr.write(f"lamina: {allowed} connections at most, not {wanted}: {why}\n")
    return allowed


def _spare_the_collector() -> None:
    """Jobs are millions of objects without cycles: looking through them for garbage would stop the server for nothing.

    Threads: the upkeep's thread yields often, so that the loop never waits long for the interpreter.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)
    sys.setswitchinterval(0.0005)


def _runner() -> Callable[..., None]:
    """asyncio.run, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    run: Callable[..., None] = uvloop.run
    return run
