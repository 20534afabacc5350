"""A disk of which any one operation can fail, with any error, and engines of every kind that are closed on it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina import data
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.engines.topics import ids
from lamina.engines.topics.topics import Topics
from lamina.log import OS, LogOptions
from lamina.log.files import File, Files, FolderLock
from lamina.log.files.memory import MemoryFiles
from lamina.log.writer import Log
from lamina.server.audit import Audit
from lamina.server.history import History
from lamina.testing import ManualClock

ENDS = ("close", "release")
"""As with a real disk the handle is gone when one of them fails."""
ERRORS: dict[str, Callable[[], BaseException]] = {
    "an error of the disk": lambda: OSError(errno.EIO, "Input/output error"),
    "a full disk": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "a mistake of ours": lambda: RuntimeError("a mistake of ours"),
    "no memory": MemoryError,
    "an interruption": KeyboardInterrupt,
}


class Striking:
    """Wraps a disk: ``arm`` it, and the n-th operation from there on fails, of files and locks too."""

    def __init__(self, disk: MemoryFiles | None = None) -> None:
        self.disk = MemoryFiles() if disk is None else disk
        self.disarm()

    def arm(self, nth: int, error: Callable[[], BaseException], only: str = "") -> None:
        """``only``: count operations on paths that contain this."""
        self.left, self.error, self.only = nth, error, only

    def disarm(self) -> None:
        self.arm(0, OSError)
        self.struck = ""

    def meets(self, operation: str, path: str) -> None:
        if self.only in path:
            self.left -= 1
            if self.left == 0:
                self.struck = f"{operation} {path}"
                raise self.error()

    def wrapped(self, found: Any, path: str) -> Any:
        return found if isinstance(found, str) else _Handle(self, found, path)

    def __getattr__(self, name: str) -> Any:
        act = getattr(self.disk, name)

        def operate(path: str, *more: Any, **words: Any) -> Any:
            self.meets(name, path)
            found = act(path, *more, **words)
            return self.wrapped(found, path) if name in ("open", "create", "lock") else found

        return operate


class _Handle:
    def __init__(self, files: Striking, inner: File | FolderLock, path: str) -> None:
        self._files, self._inner, self.path = files, inner, path

    @property
    def identity(self) -> tuple[int, int]:
        return self._inner.identity  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._inner, name)

        def operate(*more: Any) -> Any:
            if name in ENDS:
                act()
                self._files.meets(name, self.path)
                return None
            self._files.meets(name, self.path)
            return act(*more)

        return operate


def assert_let_go(files: Striking) -> None:
    """Nobody has a lock, and no file is open."""
    assert not files.disk.locks, files.struck
    assert not {file.path for file in files.disk.handles}, files.struck


@dataclass(frozen=True)
class Kind:
    """Something that is opened, used and closed."""

    open: Callable[[Files], Any]
    use: Callable[[Any], None]
    """What is done before it is closed; some of it nobody waits for."""
    holds: Callable[[Any], Sequence[object]]
    """What it has, to be compared after it was opened again."""


CLOCK = ManualClock()
_OPTIONS = LogOptions(sync=OS)


def _use_log(log: Log) -> None:
    log.append(b"kept", until=log.options.sync.level)
    log.append(b"under way")


def _use_topics(topics: Topics) -> None:
    for name in (b"a", b"b", b"c"):
        topic = topics.get_or_make(name)
        topic.settle(topic.add([b"f", b"kept"])[1])
        topic.groups.settle(topic.groups.create(b"g", ids.FIRST))
        topic.groups.deliver(b"g", b"somebody", 1)
        topic.add([b"f", b"under way"])


def _topics_hold(topics: Topics) -> list[object]:
    found: list[object] = []
    for name in topics.names():
        topic = topics.get(name)
        if topic is not None:
            found += [(name, fields[1]) for _, fields in topic.read(ids.FIRST)[0]]
            found += [(name, len(group.pending)) for group in topic.groups.state.groups.values()]
    return found


def _use_jobs(engine: JobEngine) -> None:
    for number in range(2):
        position = engine.add(bytes([*range(6), 0x40, 7, 0x80, *range(6), number]), "q", 60_000, 600_000, b"payload")
        if number == 0:
            engine.settle(position)


def _use_queues(engine: Any) -> None:
    queue, position = engine.create()
    engine.settle(position)
    engine.keeper.settle(engine.send(queue, b"kept")[1])
    engine.send(queue, b"under way")


def _queues_hold(engine: Any) -> list[object]:
    return [each.body for queue in engine.state.queues.values() for each in engine.messages.messages(queue)]


def _use_store(engine: StoreEngine) -> None:
    for value in (b"kept", b"under way"):
        with engine.channel(0).begin() as session:
            session.put(1, value, value)
        if value == b"kept":
            engine.switch_epoch()


def _use_history(history: History) -> None:
    history.sample({"jobs.ready": 1.0})
    history.note({"added_total": 1.0})


def _use_audit(audit: Audit) -> None:
    audit.end(audit.begin("me", "here", "jobs.pause", "q", {}), "done")


def _use_data(lm: data.Data) -> None:
    lm.log("own").append(b"kept")
    lm.topic("t").publish({"f": "kept"})
    lm.jobs.add("q", b"payload")
    lm.store.put(1, b"k", b"kept")
    made = lm.queues.create()
    lm.queue(made.sid).send(b"kept")


def _opened_queues(store: str) -> Callable[[Files], Any]:
    options = QueueOptions(store=store, dump_every_s=0, expire_every_s=0)
    return lambda files: open_engine("queues", options=options, log=_OPTIONS, files=files, clock=CLOCK, threaded=False)


KINDS: dict[str, Kind] = {
    "log": Kind(
        lambda files: Log.open("log", options=_OPTIONS, files=files, clock=CLOCK, threaded=False),
        _use_log,
        lambda log: [record.payload for record in log.reader.read()],
    ),
    "topics": Kind(
        lambda files: Topics.open("topics", options=_OPTIONS, files=files, clock=CLOCK, threaded=False),
        _use_topics,
        _topics_hold,
    ),
    "jobs": Kind(
        lambda files: JobEngine.open("jobs", options=_OPTIONS, files=files, clock=CLOCK, threaded=False),
        _use_jobs,
        lambda engine: sorted(engine.state.jobs),
    ),
    "queues in memory": Kind(_opened_queues("memory"), _use_queues, _queues_hold),
    "queues as journals": Kind(_opened_queues("journal"), _use_queues, _queues_hold),
    "store": Kind(
        lambda files: StoreEngine.open("store", files=files, clock=CLOCK, options=StoreOptions(epoch_ms=0)),
        _use_store,
        lambda engine: [found.key for found in engine.snapshot().scan()],
    ),
    "the audit log": Kind(
        lambda files: Audit("data", files=files, clock=CLOCK),
        _use_audit,
        lambda audit: [entry.outcome for entry in audit.newest()],
    ),
    "the history": Kind(
        lambda files: History("data", files=files, clock=CLOCK, threaded=False),
        _use_history,
        lambda history: sorted(history.last_counters()),
    ),
    "a data folder": Kind(
        lambda files: data.open("data", files=files, topics=_OPTIONS, jobs=_OPTIONS),
        _use_data,
        lambda lm: [record.payload for record in lm.log("own").reader.read()] + lm.topics.names(),
    ),
}
