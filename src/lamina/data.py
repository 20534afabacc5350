"""A data folder: what ``lamina.open`` gives. Holds named logs, and one thread that commits for all of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, overload

from lamina.clock import Clock, SystemClock
from lamina.errors import BadName, BadOption, LogClosed, from_os
from lamina.log import folders, mark
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.history import DEFAULT_S, SHARE, History
from lamina.log.options import LogOptions
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.jobs.api import Jobs
    from lamina.engines.queues.api import HeldQueue, Queues
    from lamina.engines.queues.options import QueueOptions
    from lamina.engines.queues.views import Key
    from lamina.engines.store.api import Store
    from lamina.engines.store.options import StoreOptions
    from lamina.engines.topics.api import NamedTopic, TopicFolder
    from lamina.engines.topics.typed import TypedTopic
    from lamina.log.reserve import Reserve
    from lamina.tasks.book import TaskBook

T = TypeVar("T")


def folder_name(name: str) -> str:
    """A name as one path component (log/folders.py). Raises: BadName, for an empty one, too."""
    if not name:
        raise BadName("'' cannot be a name here", hint="give it at least one character")
    try:
        return folders.folder_name(name.encode())
    except UnicodeEncodeError:
        raise BadName(f"{name[:40]!r} cannot be a name here", hint="it is no text that UTF-8 can hold") from None


class Data:
    """A data folder, open for writing.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        folder: str,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        jobs: LogOptions | None = None,
        topics: LogOptions | None = None,
        retention: Mapping[str, str] | None = None,
        queues: QueueOptions | None = None,
        queue_log: LogOptions | None = None,
        store: StoreOptions | None = None,
        history_s: float = DEFAULT_S,
        history_percent: float = SHARE,
    ) -> None:
        """Use ``lamina.open``."""
        self._store_options = store
        self._retention = dict(retention or {})
        self._queue_options, self._queue_log_options = queues, queue_log
        self._jobs_options, self._topics_options = jobs, topics
        self.folder = folder
        self._files = RealFiles() if files is None else files
        self._has_own_files = files is None
        self.history = History.on_disk(self._files, folder, history_s, history_percent, self._is_short)
        """What stays of the recent past, and the room it takes."""
        mark.check(self._files, folder)
        self._clock = clock
        self._committer = Committer()
        self._lock = threading.Lock()
        self._logs: dict[str, Log] = {}
        self._jobs: Jobs | None = None
        self._topics: TopicFolder | None = None
        self._queues: Queues | None = None
        self._store: Store | None = None
        self._reserve: Reserve | None = None
        self._is_closed = False

    def log(self, name: str, options: LogOptions | None = None, *, salvage: bool = False) -> Log:
        """The log of that name, opened (and made) at the first call. It is closed with the data folder.

        A log that failed (a sync error) is closed and opened anew.
        Raises: BadName; LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull; LogClosed.
        """
        folder = join(join(self.folder, "logs"), folder_name(name))
        with self._lock:
            self._check_open()
            log = self._logs.get(name)
            if log is not None and log.failure is not None:
                log.close()
                log = None
            if log is not None and options is not None and options != log.options:
                raise BadOption(f"{name!r} is open with other options", hint="close the data folder first")
            if log is None:
                log = self._logs[name] = Log.open(
                    folder,
                    options=options,
                    files=self._files,
                    clock=self._clock,
                    committer=self._committer,
                    salvage=salvage,
                )
            return log

    @property
    def jobs(self) -> Jobs:
        """The jobs of the folder, opened (and made) at the first use. They are closed with the data folder.

        Raises: LogLocked if a server has them; Corruption, WrongFormat; DiskError, DiskFull; LogClosed.
        """
        with self._lock:
            self._check_open()
            if self._jobs is None:
                from lamina.engines.jobs.api import Jobs
                from lamina.engines.jobs.engine import JobEngine

                folder = join(self.folder, "jobs")
                mark.make(self._files, self.folder)
                reserve = self._room()
                with Teardown(folder) as teardown:
                    engine = JobEngine.open(
                        folder,
                        options=self._jobs_options,
                        files=reserve.files,
                        clock=self._clock,
                        committer=self._committer,
                    )
                    teardown.later(engine.close)
                    engine.reserve = reserve
                    self._jobs = Jobs(engine, self.history)
                    teardown.cancel()
            return self._jobs

    @property
    def topics(self) -> TopicFolder:
        """The topics of the folder, opened (and made) at the first use. They are closed with the data folder.

        Raises: LogLocked if a server has them; BadOption; DiskError, DiskFull; LogClosed.
        """
        with self._lock:
            self._check_open()
            if self._topics is None:
                from lamina.engines.topics.api import TopicFolder
                from lamina.engines.topics.open_topics import share_of_process
                from lamina.engines.topics.retention import Retentions
                from lamina.engines.topics.topics import Topics

                retentions = Retentions.parse(f"{pattern}={limits}" for pattern, limits in self._retention.items())
                folder = join(self.folder, "topics")
                mark.make(self._files, self.folder)
                reserve = self._room()
                with Teardown(folder) as teardown:
                    topics = Topics.open(
                        folder,
                        options=self._topics_options,
                        files=reserve.files,
                        clock=self._clock,
                        committer=self._committer,
                        most_handles=share_of_process(),
                    )
                    teardown.later(topics.close)
                    topics.reserve = reserve
                    self._topics = TopicFolder(topics, retentions, self.history)
                    teardown.cancel()
            return self._topics

    @overload
    def topic(self, name: str) -> NamedTopic: ...

    @overload
    def topic(self, name: str, kind: type[T]) -> TypedTopic[T]: ...

    def topic(self, name: str, kind: type[T] | None = None) -> NamedTopic | TypedTopic[T]:
        """One topic: ``data.topics.topic(name)``; with a ``kind`` (a msgspec.Struct, a dataclass, a TypedDict) its
        messages are such. Raises: BadName; TypeError for a kind that cannot be; as ``topics``.
        """
        plain = self.topics.topic(name)
        if kind is None:
            return plain
        from lamina.engines.topics.typed import TypedTopic

        return TypedTopic(plain, kind)

    @property
    def queues(self) -> Queues:
        """The queues of the folder, opened (and made) at the first use. They are closed with the data folder.

        Raises: LogLocked if a server has them; Corruption, WrongFormat; BadOption if the messages are in the other
            store; DiskError, DiskFull; LogClosed.
        """
        with self._lock:
            self._check_open()
            if self._queues is None:
                from lamina.engines.queues.api import Queues
                from lamina.engines.queues.opening import open_engine

                folder = join(self.folder, "queues")
                reserve = self._room()
                with Teardown(folder) as teardown:
                    engine = open_engine(
                        folder,
                        options=self._queue_options,
                        log=self._queue_log_options,
                        files=reserve.files,
                        clock=self._clock,
                        committer=self._committer,
                        keeps_history=self.history.keep_s > 0,
                    )
                    teardown.later(engine.close)
                    engine.reserve = reserve
                    self._queues = Queues(engine, self.history)
                    teardown.cancel()
            return self._queues

    def queue(self, id: str, key: Key | None = None) -> HeldQueue:
        """One end of a queue: ``data.queues.queue(id, key)``. Raises: as ``queues``."""
        return self.queues.queue(id, key)

    @property
    def store(self) -> Store:
        """The store of the folder, opened (and made) at the first use. It is closed with the data folder.

        Raises: LogLocked if a server has it; Corruption, WrongFormat; DiskError, DiskFull; LogClosed.
        """
        with self._lock:
            self._check_open()
            if self._store is None:
                from lamina.engines.store.api import Store

                reserve = self._room()
                self._store = Store.open(
                    join(self.folder, "store"),
                    options=self._store_options,
                    files=reserve.files,
                    clock=self._clock,
                    committer=self._committer,
                    history=self.history,
                )
                self._store.engine.use_reserve(reserve)
            return self._store

    @cached_property
    def task(self) -> TaskBook:
        """``@data.task(...)`` turns a typed function into a job; ``lamina worker`` does them."""
        from lamina.tasks.book import TaskBook

        return TaskBook(lambda: self.jobs)

    @property
    def tasks(self) -> TaskBook:
        """All functions that were made tasks, by name."""
        return self.task

    def _is_short(self) -> bool:
        return self._reserve is not None and self._reserve.is_short

    def _room(self) -> Reserve:
        """What all engines share: who says whether there is room on the disk, and keeps some."""
        if self._reserve is None:
            from lamina.log.naming import RESERVE
            from lamina.log.reserve import Reserve, former

            # Plain logs have files of their own: what they take is new work, and must not eat the reserve.
            files = RealFiles() if self._has_own_files else self._files
            try:
                files.make_folder(self.folder)
            except OSError as error:
                raise from_os(error, "make the folder", self.folder) from error
            clock, path = self._clock or SystemClock(), join(self.folder, RESERVE)
            self._reserve = Reserve(files, path, clock, former=former(self.folder))
        return self._reserve

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.folder}: the data folder is closed", hint="open it again")

    def close(self) -> None:
        """Close everything in order. Raises: the first error, after all was closed; others are logged."""
        with self._lock, Teardown(self.folder) as teardown:
            self._is_closed = True
            engines = [engine for engine in (self._jobs, self._topics, self._queues, self._store) if engine is not None]
            for one in [*self._logs.values(), *engines]:
                teardown.step(one.close)
            self._logs.clear()
            self._jobs = self._topics = self._queues = self._store = None
            teardown.step(self._committer.stop)

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def open(
    folder: str | os.PathLike[str],
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    jobs: LogOptions | None = None,
    topics: LogOptions | None = None,
    retention: Mapping[str, str] | None = None,
    queues: QueueOptions | None = None,
    queue_log: LogOptions | None = None,
    store: StoreOptions | None = None,
    history_s: float = DEFAULT_S,
    history_percent: float = SHARE,
) -> Data:
    """Open a data folder, making it if need be. ``jobs`` are the settings of its command log, ``topics`` those of the
    logs of its topics and their groups. ``retention``: how long topics keep their messages, by name or pattern, such
    as ``{"logs-*": "age:7d,bytes:10GiB"}``; the first that fits counts, and else everything is kept.
    ``queues``: how queues are kept, their quota, how long a message is; ``queue_log``: how their files are written.
    ``store``: how long its epochs are, how much of it is in memory, when it compacts by itself.
    ``history_s``: files that only the past needs stay for so many seconds, so that it can be read and restored, as long
    as all of them take at most ``history_percent`` of the disk; 0: they go at once.

    Raises: BadOption; WrongFormat if a later version of lamina made the folder; nothing was changed.
    """
    return Data(
        os.fspath(folder),
        files=files,
        clock=clock,
        jobs=jobs,
        topics=topics,
        retention=retention,
        queues=queues,
        queue_log=queue_log,
        store=store,
        history_s=history_s,
        history_percent=history_percent,
    )
