"""Engines that are opened for a server, each with what its door needs, closed in order when the server stops.

While one opens, ``Life`` is told how far it is, and afterwards what it found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lamina.addresses import Address
from lamina.errors import JobError, StorageError
from lamina.log.teardown import Teardown
from lamina.server import restored
from lamina.server.inside import Inside
from lamina.server.listening import Door
from lamina.server.settings import JobSettings, QueueSettings, Settings, StoreSettings, TopicSettings

if TYPE_CHECKING:
    from lamina.engines.jobs.engine import JobEngine
    from lamina.log.commit import Committer
    from lamina.log.files import Files
    from lamina.log.reserve import Reserve
    from lamina.log.writer import Log
    from lamina.server.resp.door import RespDoor
    from lamina.server.resp.session import House

logger = logging.getLogger("lamina.server")


@dataclass(frozen=True, slots=True)
class Served:
    """Engines that are open, and how to open their door."""

    door: str
    where: Address
    kept: str
    """Where the data is, and how safe."""
    open_door: Callable[[int], Door]
    """Given how many connections it may have, on the loop."""
    change: Callable[[Settings, Door], None]
    """Let hold what a reload can change, on the loop."""


@contextmanager
def jobs(settings: JobSettings, inside: Inside) -> Iterator[Served]:
    """Raises: what opening the engine does."""
    from lamina.engines.jobs.engine import JobEngine
    from lamina.engines.jobs.upkeep import Upkeep
    from lamina.server.resp.info_sections import of_jobs
    from lamina.server.workq.door import WorkqDoor

    life, gate = inside.life, inside.gate
    with Teardown("the jobs") as teardown:
        reserve = None if settings.folder is None else inside.reserve_of(settings.folder)
        with life.restoring("jobs") as told:
            engine = JobEngine.open(settings.folder, options=settings.log, files=_files(reserve), progress=told)
            teardown.later(engine.close)
            restored.tell_jobs(engine, told)
        upkeep = Upkeep(engine, clean_ms=settings.clean_ms, history=inside.past)
        # A start that failed writes nothing on its way out: it may be tried again and again.
        teardown.later(upkeep.checkpoint_at_stop, unless_failed=True)
        if settings.returns_leases:
            teardown.later(partial(_return_leases, engine), unless_failed=True)
        teardown.later(upkeep.stop)
        engine.reserve = reserve
        restored.watch_log(life, "jobs", lambda: _log_of(engine.log))
        life.sections[b"jobs"] = b"Jobs", of_jobs(engine)
        upkeep.start()

        def forget() -> None:
            inside.jobs = inside.jobs_upkeep = None

        inside.jobs, inside.jobs_upkeep = engine, upkeep
        teardown.later(forget)
        kept = f"jobs in {settings.folder or 'memory only'}, sync {settings.log.sync}"

        def open_door(most: int) -> Door:
            return WorkqDoor(engine, max_connections=most, gate=gate)

        def change(new: Settings, door: Door) -> None:
            if new.jobs is not None:
                upkeep.clean_every(new.jobs.clean_ms)

        yield Served("workq", settings.at, kept, open_door, change)


def _return_leases(engine: JobEngine) -> None:
    """Jobs that are being worked on are ready again; who works on one finds out when it reports."""
    from lamina.engines.jobs.job import AT_LEASED

    with engine.lock:
        leased = [job.id for queue in engine.state.queues.values() for job in queue.lists[AT_LEASED]]
    try:
        for id in leased:
            with suppress(JobError):  # it was reported, or its time was up, just now
                engine.release(id)
    except StorageError as error:  # they are, once the time of their leases is up
        logger.warning("jobs that were being worked on stay leased: %s", error)
        return
    if leased:
        logger.info("%d jobs that were being worked on are ready again", len(leased))


def _files(reserve: Reserve | None) -> Files | None:
    """Those that get its room when the disk is full; None: the engine's own."""
    return None if reserve is None else reserve.files


def _log_of(log: object) -> Log | None:
    from lamina.log.writer import Log

    return log if isinstance(log, Log) else None


@contextmanager
def topics(settings: TopicSettings, inside: Inside) -> Iterator[Served]:
    """With the queues and the store, which the same door serves. Raises: BadOption; what opening the engines does."""
    from lamina.engines.topics.retention import Retentions
    from lamina.engines.topics.topics import RESERVE, Topics
    from lamina.engines.topics.upkeep import Upkeep
    from lamina.log.commit import Committer
    from lamina.server.resp.door import RespDoor
    from lamina.server.resp.session import House
    from lamina.server.resp.settings import Settings as Shown

    life, gate = inside.life, inside.gate
    retentions = Retentions.parse(settings.retain)
    with Teardown("the topics") as teardown:
        committer = Committer()
        teardown.later(committer.stop)
        reserve = inside.reserve_of(settings.folder, RESERVE)
        with life.restoring("topics") as told:
            opened = Topics.open(
                settings.folder,
                options=settings.log,
                files=_files(reserve),
                committer=committer,
                most_handles=None if inside.handles is None else inside.handles.topics,
            )
            teardown.later(opened.close)
            restored.tell_topics(opened, told)
        upkeep = Upkeep(opened, retentions, history=inside.past)
        teardown.later(upkeep.stop)
        opened.reserve = reserve
        restored.watch_topics(life, opened)
        upkeep.start()

        def forget() -> None:
            inside.topics = inside.topics_upkeep = None

        inside.topics, inside.topics_upkeep = opened, upkeep
        teardown.later(forget)
        let_queues_in = teardown.enter(_queues(settings.queues, committer, inside))
        let_store_in = teardown.enter(_store(settings.store, committer, inside))

        def open_door(most: int) -> Door:
            shown = Shown(
                sync=str(settings.log.sync),
                max_connections=most,
                max_bulk=settings.max_bulk,
                idle_s=settings.idle_s,
                folder=settings.folder,
                sections=life.sections,
                past=inside.past,
            )
            house = House(opened, opened.clock, shown, gate=gate)
            house.why = upkeep.why
            let_queues_in(house)
            let_store_in(house)
            return RespDoor(house)

        def change(new: Settings, door: Door) -> None:
            if new.topics is not None:
                upkeep.retentions = Retentions.parse(new.topics.retain)
                _change_resp(new.topics, door)

        yield Served("resp", settings.at, _kept(settings), open_door, change)


def _change_resp(new: TopicSettings, door: Door) -> None:
    if TYPE_CHECKING:
        assert isinstance(door, RespDoor)
    door.house.settings.max_connections = door.max_connections  # what CONFIG GET shows
    door.hang_up_after(new.idle_s)


def _kept(settings: TopicSettings) -> str:
    kept = f"topics in {settings.folder}, sync {settings.log.sync}"
    if settings.queues is not None:
        kept += f", queues in {settings.queues.folder} ({settings.queues.options.store})"
    if settings.store is not None:
        kept += f", store in {settings.store.folder}"
    return kept


@contextmanager
def _queues(settings: QueueSettings | None, committer: Committer, inside: Inside) -> Iterator[Callable[[House], None]]:
    """Gives what lets a house of the RESP door serve them."""
    if settings is None:
        yield lambda house: None
        return
    from lamina.engines.queues.deliveries import Deliveries
    from lamina.engines.queues.opening import open_engine
    from lamina.engines.queues.upkeep import Upkeep
    from lamina.server.resp.queue_house import let_in

    given, life = settings, inside.life
    options = given.options
    if inside.handles is not None and options.store == "journal":
        options = replace(options, most_open=min(options.most_open, inside.handles.most_queues))
    with Teardown("the queues") as teardown:
        reserve = inside.reserve_of(given.folder)
        with life.restoring("queues") as told:
            engine = open_engine(
                given.folder,
                options=options,
                log=given.log,
                files=_files(reserve),
                committer=committer,
                force=given.force,
                keeps_history=inside.past.keep_s > 0,
                progress=told,
            )
            teardown.later(engine.close)
            restored.tell_queues(engine, told)
        upkeep = Upkeep(engine, history=inside.past)
        teardown.later(upkeep.dump_at_stop, unless_failed=True)
        teardown.later(upkeep.stop)
        engine.reserve = reserve
        restored.watch_log(life, "queues", lambda: _log_of(engine.log))
        if engine.keeper is not engine:  # the journal, where each queue has its own files
            restored.watch_log(life, "queue messages", lambda: engine.keeper)
            life.tell_damage("queue messages", lambda: [str(problem) for problem in engine.keeper.damage])
        deliveries = Deliveries(engine)
        upkeep.start()

        def forget() -> None:
            inside.queues = inside.queues_upkeep = None

        inside.queues, inside.queues_upkeep = deliveries, upkeep
        teardown.later(forget)
        password = None if given.password is None else given.password.encode()
        yield lambda house: let_in(house, deliveries, upkeep, password)


@contextmanager
def _store(settings: StoreSettings | None, committer: Committer, inside: Inside) -> Iterator[Callable[[House], None]]:
    """Gives what lets a house of the RESP door serve it.

    A store that is there is opened now, so that damage is found now; one that is not is made by the first command.
    """
    if settings is None:
        yield lambda house: None
        return
    from lamina.engines.store.api import Store
    from lamina.server.resp.store_house import let_in

    folder, options, life = settings.folder, settings.options, inside.life
    stores: list[Store] = []

    with Teardown("the store") as teardown:

        def open_store(progress: Callable[[int, int], None] = lambda done, total: None) -> Store:
            reserve = inside.reserve_of(folder)
            store = Store.open(
                folder,
                options=options,
                files=_files(reserve),
                committer=committer,
                history=inside.past,
                progress=progress,
            )
            store.engine.use_reserve(reserve)
            stores.append(store)
            return store

        def close() -> None:
            inside.find_store = lambda: None
            for store in stores:
                store.close()

        inside.find_store = lambda: stores[0] if stores else None
        teardown.later(close)
        with life.restoring("store") as told:
            if Path(folder).is_dir():
                restored.tell_store(open_store(told), told)
            else:
                told.restored("none yet, made at its first use")
        restored.watch_log(life, "store", lambda: stores[0].engine if stores else None)
        for warning in stores[0].engine.warnings if stores else []:
            logger.warning("%s", warning)

        def serve_it(house: House) -> None:
            let_in(house, open_store, stores[0] if stores else None)

        yield serve_it
