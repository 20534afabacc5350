"""A server's life: take addresses, open the engines, open the doors, wait for a signal, let everything out in order.

    addresses, certificates, users      what is wrong here is told before a file is touched
    the HTTP door                       answers from here to the end: who watches sees how far the restore is
    engines                             restored one after the other (houses.py)
    the other doors                     clients are let in
    a signal                            no new clients; running commands are answered; engines are synced and closed

Leases of jobs are not taken back at a stop: docs/decisions/0015-product.md says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lamina.addresses import Address as Address
from lamina.errors import BadOption, DiskError, LaminaError, MissingExtra
from lamina.log import control, mark
from lamina.log.files.real import RealFiles
from lamina.log.history import History as Past
from lamina.log.teardown import Teardown
from lamina.server import handles, houses, notifying
from lamina.server.disks import Disks
from lamina.server.houses import Served
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.listening import Door, Listener
from lamina.server.occupied import check_free
from lamina.server.output import Output
from lamina.server.reloading import Reload
from lamina.server.security.exposure import check_exposure, is_public
from lamina.server.security.gate import Gate
from lamina.server.security.modes import open_to_others
from lamina.server.security.tls import server_context
from lamina.server.settings import HttpSettings as HttpSettings
from lamina.server.settings import JobSettings as JobSettings
from lamina.server.settings import QueueSettings as QueueSettings
from lamina.server.settings import Reloaded as Reloaded
from lamina.server.settings import Settings as Settings
from lamina.server.settings import StoreSettings as StoreSettings
from lamina.server.settings import TlsSettings as TlsSettings
from lamina.server.settings import TopicSettings as TopicSettings
from lamina.server.signals import Signals, StopAsked
from lamina.server.telling import told_often
from lamina.units import show_duration

if TYPE_CHECKING:
    from lamina.server.http.app import Site

logger = logging.getLogger("lamina.server")

Say = Callable[[str], None]


def serve(settings: Settings, say: Say, reload: Callable[[], Reloaded] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. ``say`` gets one line when the doors are open, then what was restored.

    ``reload`` is called at SIGHUP and reads the settings anew; what it raises changes nothing.
    Durability: an orderly stop syncs everything.
    Raises: BadOption if there is nothing to serve, or it would be open to all; WrongFormat if a later version wrote the
        folder; what opening the engines does; DiskError if an address is in use.
    """
    if settings.jobs is None and settings.topics is None:
        raise BadOption("there is no door to open", hint="leave --workq or --resp on")
    signals = Signals()
    with signals.taken():
        try:
            with Teardown("the server") as opened:
                _live(settings, say, reload, signals, opened)
        except StopAsked:
            say(f"lamina: {signals.name} while restoring: given up, the next start begins anew")


def _live(
    settings: Settings, say: Say, reload: Callable[[], Reloaded] | None, signals: Signals, opened: Teardown
) -> None:
    files = RealFiles()
    if settings.data is not None:
        mark.check(files, settings.data)
    life, gate = Life(), Gate(settings.data, password=settings.password)
    past = None
    if settings.data is not None:
        past = Past.on_disk(
            files, settings.data, settings.history_s, settings.history_percent, lambda: inside.is_short_of_room
        )
    inside = Inside(life, gate, data=settings.data, config=settings.config, past=past)
    tls = None
    if settings.tls is not None:
        tls = server_context(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
    check_exposure(_addresses(settings), gate, tls, settings.insecure)
    listeners = []
    for engine in (settings.jobs, settings.topics):
        if engine is not None:
            listeners.append(Listener(engine.at))
            opened.later(listeners[-1].close)
    check_free(files, (folder for _, folder in _folders(settings)))
    # Before the engines, so that it is the last to close: who watches sees how far they are, and the server stop.
    http = _open_http(settings.http, inside, tls, opened)
    running = Running(listeners, tls, inside, signals)
    opened.later(partial(running.say_stopped, say))  # behind the engines' closing
    notifying.notify("STATUS=restoring")
    inside.disks = Disks(
        life, settings.data, reserve_bytes=settings.reserve_bytes, low_water_bytes=settings.low_water_bytes
    )
    if settings.data is not None:
        _make_mark(files, settings.data)
    with told_often(life):
        served = _open_engines(settings, inside, opened)
    if settings.data is not None:
        _open_audit(inside, settings.data, opened)
        for warning in open_to_others(settings.data):
            logger.warning("%s", warning)
    _keep_history(inside, settings.data, opened)
    _look_around(inside, opened)
    handles.spare_the_collector()

    def ready() -> None:
        doors = [f"{each.door} on {listener.shown}" for each, listener in zip(served, listeners, strict=True)]
        say(f"lamina: {', '.join([*doors, *http, *(each.kept for each in served)])}")
        for line in life.report:
            say(f"lamina: {line}")

    signals.loop_begins()
    try:
        output = Output(settings.max_output_bytes)
        reloading = Reload(settings, reload, gate, tls)
        _runner()(running.run(served, settings.max_connections, output, reloading, ready))
    finally:
        signals.closing()


def _make_mark(files: RealFiles, data: str) -> None:
    """Say which layout the folder has, and whether it has users, so that neither can be lost in silence."""
    if not mark.check(files, data) and any(os.path.isdir(os.path.join(data, part)) for part in ("jobs", "topics")):
        logger.warning("%s: there was no %s: an earlier lamina made the folder, or it was removed", data, mark.NAME)
    mark.make(files, data)
    if os.path.exists(os.path.join(data, control.USERS)):
        mark.note_users(files, data)


def _addresses(settings: Settings) -> list[tuple[str, str]]:
    doors = (("workq", settings.jobs), ("resp", settings.topics), ("http", settings.http))
    return [(name, str(door.at)) for name, door in doors if door is not None]


def _open_audit(inside: Inside, data: str, opened: Teardown) -> None:
    """Without it nothing can be changed over HTTP, and all else goes on."""
    from lamina.server.audit import Audit

    def close() -> None:
        inside.audit = None
        audit.close()

    try:
        audit = inside.audit = Audit(data)
    except LaminaError as error:
        logger.warning("no audit log, so that nothing can be changed over HTTP: %s", error)
    else:
        opened.later(close)


def _keep_history(inside: Inside, data: str | None, opened: Teardown) -> None:
    """Until the doors are closed: what is noted then is of engines that are still open."""
    from lamina.server import measures
    from lamina.server.history import History, Sampler

    history, measured = History(data), measures.of(inside)

    def close() -> None:
        inside.history = None
        history.close()

    opened.later(close)
    measured.continue_from(history.last_counters())
    inside.history = history
    sampler = Sampler(history, lambda: measures.vitals(inside), measured.counters)
    sampler.start()
    opened.later(sampler.stop)


def _look_around(inside: Inside, opened: Teardown) -> None:
    """Find out how it is with what nobody uses, from when the server is ready until it stops."""
    from lamina.server.looking import Looking

    looking = inside.looking = Looking(inside)
    opened.later(looking.stop)
    looking.start()


def _open_http(
    settings: HttpSettings | None, inside: Inside, tls: ssl.SSLContext | None, opened: Teardown
) -> list[str]:
    """Gives what to show of it: nothing where it is not open."""
    if settings is None:
        return []
    from lamina.server.http.door import HttpDoor

    def site() -> Site:
        from lamina.server.http.console.app import site

        return site(inside, is_loopback=not is_public(str(at)))

    at = settings.at
    tls = None if at.path else tls
    try:
        door = HttpDoor(inside.life, at.host, at.port, unix=at.path or None, tls=tls, site=site)
    except (DiskError, MissingExtra) as error:
        if settings.is_wanted:
            raise
        logger.warning("no HTTP door: %s", error)
        return []
    opened.later(door.close)
    door.start()
    return [f"http on {door.shown}"]


def _open_engines(settings: Settings, inside: Inside, opened: Teardown) -> list[Served]:
    for name, folder in _folders(settings):
        inside.life.expect(name, 0 if name == "topics" else _size(folder))  # a topic is read when it is first used
    served = []
    inside.handles = handles.divide(settings)
    if settings.jobs is not None:
        served.append(opened.enter(houses.jobs(settings.jobs, inside)))
    if settings.topics is not None:
        served.append(opened.enter(houses.topics(settings.topics, inside)))
    return served


def _folders(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.jobs is not None and settings.jobs.folder is not None:
        yield "jobs", settings.jobs.folder
    if settings.topics is not None:
        yield "topics", settings.topics.folder
        for name, engine in (("queues", settings.topics.queues), ("store", settings.topics.store)):
            if engine is not None:
                yield name, engine.folder


def _size(folder: str) -> int:
    """Bytes of the files in it, about what has to be read: the engine says it exactly when its turn has come."""
    size = 0
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if each.name == "reserve":  # room kept for a full disk, never read
                continue
            with contextlib.suppress(OSError):
                size += each.stat(follow_symlinks=False).st_size if each.is_file(follow_symlinks=False) else 0
    return size


class Running:
    """A server while its doors are open. Make it before the engines are opened."""

    def __init__(
        self, listeners: Sequence[Listener], tls: ssl.SSLContext | None, inside: Inside, signals: Signals
    ) -> None:
        self._listeners = listeners
        self._tls = tls
        self._inside = inside
        self._life = inside.life
        self._signals = signals
        self._stop_began: float | None = None

    async def run(
        self, served: Sequence[Served], most: int, output: Output, reload: Reload, ready: Callable[[], None]
    ) -> None:
        """Until a signal comes. Raises: DiskError if an address was taken meanwhile."""
        own = 0 if self._inside.handles is None else self._inside.handles.engines
        allowed = handles.connections(most, len(served), own)
        stopped = asyncio.Event()
        doors: list[Door] = []
        try:
            self._signals.on_loop(stopped.set, reload)
            for each, listener in zip(served, self._listeners, strict=True):
                doors.append(each.open_door(allowed))
                doors[-1].output = output
                await listener.open(doors[-1], self._tls)
            reload.use(served, doors, own)
            self._inside.opened(asyncio.get_running_loop(), doors)
            self._life.ready()
            ready()  # who reads that line finds it so
            notifying.notify(notifying.READY, "STATUS=ready")
            if self._signals.wants_reload or reload.is_late:
                reload()
            await stopped.wait()
        finally:
            self._stop_began = time.monotonic()
            with Teardown("the doors") as teardown:
                teardown.step(reload.end)
                teardown.step(partial(self._life.stopping, self._signals.name))
                teardown.step(self._inside.closed)
                teardown.step(partial(notifying.notify, notifying.STOPPING, "STATUS=stopping"))
                for listener in self._listeners:
                    teardown.step(listener.stop)
                ended = await asyncio.gather(*(door.close() for door in doors), return_exceptions=True)
                ended += await asyncio.gather(*(each.wait_closed() for each in self._listeners), return_exceptions=True)
                for error in ended:
                    if error is not None:
                        teardown.add(error)

    def say_stopped(self, say: Say) -> None:
        """How it ended, in a line; nothing if it never began."""
        if self._stop_began is not None:
            took = show_duration(time.monotonic() - self._stop_began)
            say(f"lamina: stopped ({self._signals.name or 'failed'}) in {took}")


def _runner() -> Callable[..., None]:
    """asyncio.run, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    run: Callable[..., None] = uvloop.run
    return run
