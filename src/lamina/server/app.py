"""A server's life: open the engines, open the doors, wait for the signal, let everything out in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption, DiskError
from lamina.log.files import join
from lamina.log.options import LogOptions
from lamina.log.reserve import SIZE, Reserve
from lamina.server.client import Client

if TYPE_CHECKING:
    from lamina.log.commit import Committer
    from lamina.server.resp.session import House

logger = logging.getLogger("lamina.server")

_JOB_HANDLES = 32  # for log files, the loop and what else is open
_TOPIC_HANDLES = 20_000  # two for each topic in use
_QUEUE_HANDLES = 64  # beside those of the journals
_STORE_HANDLES = 1024  # two for each channel and view, one for each compacted file
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The workq door and what is behind it."""

    at: Address
    folder: str | None
    """None: jobs are kept in memory only."""
    log: LogOptions
    clean_ms: int = 300_000
    reserve_bytes: int = SIZE
    """Room that is kept for a full disk; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The queues behind the RESP door."""

    folder: str
    log: LogOptions
    options: QueueOptions
    reserve_bytes: int = SIZE
    password: str | None = None
    """What has to be said to make a queue."""
    force: bool = False
    """Load what can be read where a restore would refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store behind the RESP door."""

    folder: str
    options: StoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The RESP door and what is behind it."""

    at: Address
    folder: str
    log: LogOptions
    reserve_bytes: int = SIZE
    password: str | None = None
    retain: tuple[str, ...] = ()
    """What to keep, as ``PATTERN=LIMITS`` (engines/topics/retention.py): the first that fits a topic counts."""
    idle_s: int = 0
    """Seconds after which a silent client is hung up on; 0: never."""
    max_bulk: int = 512 * 1024 * 1024
    queues: QueueSettings | None = None
    """Served by the same door; None: not at all."""
    store: StoreSettings | None = None
    """The same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to serve, and where."""

    jobs: JobSettings | None = None
    topics: TopicSettings | None = None
    max_connections: int = 10_000
    """Of each door."""


class Door(Protocol):
    """Makes a protocol for each connection."""

    def __call__(self) -> Client: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _House:
    """An engine that is open, and how to open its door."""

    door: str
    where: Address
    kept: str
    """Where its data is, and how safe."""
    handles: int
    """For its files."""
    open_door: Callable[[int], Door]
    """Given how many connections it may have, on the loop."""


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. ``say`` gets one line when the doors are open.

    Durability: an orderly stop syncs everything.
    Raises: BadOption if there is nothing to serve; what opening the engines does; DiskError if a door cannot open.
    """
    with ExitStack() as opened:
        houses: list[_House] = []
        if settings.jobs is not None:
            houses.append(opened.enter_context(_jobs(settings.jobs)))
        if settings.topics is not None:
            houses.append(opened.enter_context(_topics(settings.topics)))
        if not houses:
            raise BadOption("there is no door to open", hint="leave --workq or --resp on")
        _spare_the_collector()
        _runner()(_serve(houses, settings.max_connections, say))


@contextmanager
def _jobs(settings: JobSettings) -> Iterator[_House]:
    from lamina.engines.jobs.engine import JobEngine
    from lamina.engines.jobs.upkeep import Upkeep
    from lamina.log.naming import RESERVE
    from lamina.server.workq.door import WorkqDoor

    engine = JobEngine.open(settings.folder, options=settings.log)
    upkeep = Upkeep(engine, clean_ms=settings.clean_ms)
    try:
        if settings.folder is not None and settings.reserve_bytes:
            path = join(settings.folder, RESERVE)
            engine.reserve = Reserve(engine.files, path, engine.clock, settings.reserve_bytes)
        upkeep.start()
        kept = f"jobs in {settings.folder or 'memory only'}, sync {settings.log.sync}"
        yield _House("workq", settings.at, kept, _JOB_HANDLES, lambda most: WorkqDoor(engine, max_connections=most))
    finally:
        upkeep.stop()
        upkeep.checkpoint_at_stop()
        engine.close()


@contextmanager
def _queues(settings: QueueSettings | None, committer: Committer) -> Iterator[Callable[[House], None]]:
    """Gives what lets a house of the RESP door serve them."""
    if settings is None:
        yield lambda house: None
        return
    from lamina.engines.queues.deliveries import Deliveries
    from lamina.engines.queues.opening import open_engine
    from lamina.engines.queues.upkeep import Upkeep
    from lamina.log.naming import RESERVE
    from lamina.server.resp.queue_house import let_in

    given = settings
    engine = open_engine(given.folder, options=given.options, log=given.log, committer=committer, force=given.force)
    upkeep = Upkeep(engine)
    try:
        if given.reserve_bytes:
            path = join(given.folder, RESERVE)
            engine.use_reserve(Reserve(engine.files, path, engine.clock, given.reserve_bytes))
        deliveries = Deliveries(engine)
        upkeep.start()

        password = None if given.password is None else given.password.encode()
        yield lambda house: let_in(house, deliveries, upkeep, password)
    finally:
        try:
            upkeep.stop()
            upkeep.dump_at_stop()
        finally:
            engine.close()


@contextmanager
def _store(settings: StoreSettings | None, committer: Committer) -> Iterator[Callable[[House], None]]:
    """Gives what lets a house of the RESP door serve it.

    A store that is there is opened now, so that damage is found now; one that is not is made by the first command.
    """
    if settings is None:
        yield lambda house: None
        return
    from lamina.engines.store.api import Store
    from lamina.server.resp.store_house import let_in

    folder, options = settings.folder, settings.options
    stores: list[Store] = []

    def open_store() -> Store:
        stores.append(Store.open(folder, options=options, committer=committer))
        return stores[0]

    try:
        if Path(folder).is_dir():
            for warning in open_store().engine.warnings:
                logger.warning("%s", warning)

        def serve_it(house: House) -> None:
            let_in(house, open_store, stores[0] if stores else None)

        yield serve_it
    finally:
        for store in stores:
            store.close()


@contextmanager
def _topics(settings: TopicSettings) -> Iterator[_House]:
    from lamina.engines.topics.retention import Retentions
    from lamina.engines.topics.topics import RESERVE, Topics
    from lamina.engines.topics.upkeep import Upkeep
    from lamina.log.commit import Committer
    from lamina.server.resp.door import RespDoor
    from lamina.server.resp.session import House
    from lamina.server.resp.settings import Settings as Shown

    retentions = Retentions.parse(settings.retain)
    committer = Committer()
    topics = Topics.open(settings.folder, options=settings.log, committer=committer)
    upkeep = Upkeep(topics, retentions)
    try:
        if settings.reserve_bytes:
            path = join(settings.folder, RESERVE)
            topics.reserve = Reserve(topics.files, path, topics.clock, settings.reserve_bytes)
        upkeep.start()

        def open_door(most: int) -> Door:
            shown = Shown(
                sync=str(settings.log.sync),
                max_connections=most,
                max_bulk=settings.max_bulk,
                idle_s=settings.idle_s,
                folder=settings.folder,
            )
            password = settings.password.encode() if settings.password is not None else None
            house = House(topics, topics.clock, shown, password=password)
            house.why = upkeep.why
            let_queues_in(house)
            let_store_in(house)
            return RespDoor(house)

        with (
            _queues(settings.queues, committer) as let_queues_in,
            _store(settings.store, committer) as let_store_in,
        ):
            kept = f"topics in {settings.folder}, sync {settings.log.sync}"
            handles = _TOPIC_HANDLES
            if settings.queues is not None:
                kept += f", queues in {settings.queues.folder} ({settings.queues.options.store})"
                handles += _QUEUE_HANDLES + 3 * settings.queues.options.most_open
            if settings.store is not None:
                kept += f", store in {settings.store.folder}"
                handles += _STORE_HANDLES
            yield _House("resp", settings.at, kept, handles, open_door)
    finally:
        upkeep.stop()
        topics.close()
        committer.stop()


async def _serve(houses: list[_House], max_connections: int, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    most = _connections(max_connections, len(houses), sum(house.handles for house in houses))
    async with contextlib.AsyncExitStack() as opened:
        shown = []
        for house in houses:
            port = await opened.enter_async_context(_listening(house.open_door(most), house.where))
            shown.append(f"{house.door} on {Address(house.where.host or '*', port)}")
        say(f"lamina: {', '.join(shown)}, {', '.join(house.kept for house in houses)}")
        await stopped.wait()


@contextlib.asynccontextmanager
async def _listening(door: Door, where: Address) -> AsyncIterator[int]:
    """Gives the port."""
    loop = asyncio.get_running_loop()
    try:
        factory = cast(Callable[[], asyncio.Protocol], door)
        listener = await loop.create_server(factory, where.host or None, where.port, backlog=_BACKLOG)
    except OSError as error:
        raise DiskError(
            f"{where}: cannot listen: {error.strerror or error}", hint="is another server running there?"
        ) from error
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await door.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listener.wait_closed(), 1)


def _connections(wanted: int, doors: int, own: int) -> int:
    """For each door as many as file handles allow: those of the logs must not run out because clients took them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * doors + own
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = max(min(wanted, (soft - min(own, soft // 2)) // doors), 1)
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
