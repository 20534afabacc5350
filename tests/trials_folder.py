"""Data folders in which every feature was used, small, the same for a seed; and all that can be read from one.

They are written on a disk in memory. ``built`` gives the folder closed in order, earlier copies of it that were closed
in order too, and two looks at it while it is in use: one before and one after a last change to everything. That is what
a killed process leaves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Final, NamedTuple

import msgspec

from crash.jobs_story import view_of
from crash.store_story import OPTIONS as STORE_OPTIONS
from lamina import runs
from lamina.clock import ManualClock
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep as JobsUpkeep
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.opening import open_engine as open_queues
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep as QueuesUpkeep
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.topics import ids
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.shedding import Shedder
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import LaminaError, QuotaMet
from lamina.log import ALWAYS, Level, Log, LogOptions, consumers, mark
from lamina.log.files import Files, join
from lamina.log.files.memory import MemoryFiles
from lamina.log.folders import folder_name
from lamina.log.history import History as Past
from lamina.server.audit import Audit
from lamina.server.history import History
from lamina.server.security import users
from lamina.server.security.rights import Right

DATA: Final = "data"
PARTS: Final = ("jobs", "topics", "queues", "store", "logs")
STORES: Final = ("memory", "journal")
START_NS: Final = 1_700_000_000_000_000_000
_LONG_MS: Final = 2_000_000_000
_SMALL: Final = LogOptions(sync=ALWAYS, segment_bytes=1200)
_NEVER_NS: Final = 1 << 62
_TOPICS: Final = (b"orders", b"views", b"cleaned")
_ONE_FILE: Final = (b"small", b"sm/all:2")
_PLAIN: Final = ("events", "notes")

Contents = dict[str, bytes]


class Built(NamedTuple):
    """One data folder at several moments."""

    seed: int
    store: str
    """Where the messages of its queues are."""
    closed: Contents
    older: tuple[Contents, ...]
    """Closed in order, earlier."""
    running: Contents
    """In use, all of it synced."""
    before: Contents
    """The same, before the last change of each log."""
    now_ns: int


class Refused(NamedTuple):
    """Instead of content: nothing could be read."""

    error: str
    text: str


@cache
def built(store: str, seed: int = 0) -> Built:
    house = _House(store, seed)
    older = []
    for number in range(3):
        house.live(number, dumps=number < 2)
        older.append(house.files.contents())
    with house.opened() as engines:
        house.change(engines)
    closed = house.files.contents()
    with house.opened() as engines:
        house.work(engines, 3)
        before = house.files.contents()
        house.change(engines)
        running = house.files.contents()
    return Built(seed, store, closed, tuple(older), running, before, house.clock.now_ns())


class _Engines(NamedTuple):
    jobs: JobEngine
    topics: Topics
    queues: QueueEngine
    store: StoreEngine
    logs: Mapping[str, Log]
    audit: Audit
    history: History


class _House:
    """A data folder that is lived in."""

    def __init__(self, store: str, seed: int) -> None:
        self.store, self.rng = store, random.Random(f"{store} {seed}")
        self.files, self.clock = MemoryFiles(), ManualClock(START_NS)
        self.past = Past(keep_s=3600)
        self._queues: list[bytes] = []
        mark.make(self.files, DATA)
        ann = users.User("ann", (Right.parse("topics:read:*"),), bytes(range(32)), START_NS)
        users.save(DATA, {"ann": ann}, self.files)
        self.files.write(join(DATA, "reserve"), bytes(4096))

    def live(self, number: int, *, dumps: bool = True) -> None:
        """From a start to an orderly stop."""
        with self.opened() as engines:
            self.work(engines, number)
            self.look_after(engines, number, dumps=dumps)
            self.work(engines, number + 10)
            engines.jobs.tick()
            if number == 1:
                JobsUpkeep(engines.jobs).checkpoint()
            if dumps:
                QueuesUpkeep(engines.queues, history=self.past).dump()
            self._save_consumers(engines)
        self._note_run(number)

    @contextmanager
    def opened(self) -> Iterator[_Engines]:
        files, clock = self.files, self.clock
        engines = _Engines(
            JobEngine.open(join(DATA, "jobs"), options=_SMALL, files=files, clock=clock, threaded=False),
            Topics.open(join(DATA, "topics"), options=_SMALL, files=files, clock=clock, threaded=False),
            opened_queues(files, clock, self.store, self.rng.randbytes),
            open_store(files, clock),
            {name: opened_plain(files, clock, name) for name in _PLAIN},
            Audit(DATA, files=files, clock=clock),
            History(DATA, files=files, clock=clock, threaded=False, segment_bytes=1500),
        )
        yield engines
        for engine in (engines.jobs, engines.topics, engines.queues, engines.store, *engines.logs.values()):
            engine.close()
        engines.audit.close()
        engines.history.close()

    # -- what is done to everything ------------------------------------------------------------------------------------

    def work(self, engines: _Engines, number: int) -> None:
        self._jobs(engines.jobs, number)
        self._topics(engines.topics, number)
        self._send_and_receive(engines.queues, number)
        self._store(engines.store, number)
        for log in engines.logs.values():
            for count in range(25):
                log.append(b"%d %d " % (number, count) + self._text(), until=Level.SYNCED)
                self.clock.advance(0.01)
        begun = engines.audit.begin("ann", "127.0.0.1", "jobs.redrive", f"queue {number}", {"limit": number})
        engines.audit.end(begun, "done")
        for count in range(12):
            self.clock.advance(10)
            engines.history.sample({"jobs": float(count), f"topics {number}": self.rng.random()})

    def look_after(self, engines: _Engines, number: int, *, dumps: bool) -> None:
        """What goes on by itself in a server."""
        upkeep = JobsUpkeep(engines.jobs)
        if number < 2:
            upkeep.checkpoint()
        for _ in range(2):
            self.clock.advance(1)
            upkeep.clean(everything=True)
        for name in _TOPICS:
            topic = _topic(engines.topics, name)
            retention = Retention(length=60) if name == b"cleaned" else Retention()
            Shedder(topic).shed(retention)
            if number < 2:
                topic.checkpoint()
        _topic(engines.topics, b"orders").groups.compact()
        if dumps:
            QueuesUpkeep(engines.queues, history=self.past).dump()
        compactions = Compactions(engines.store, self.past)
        engines.store.request_rotation()
        if number < 2:
            compactions.compact()
        if number:
            compactions.clean_up(keeps_recent=True)

    def change(self, engines: _Engines) -> None:
        """One more record for every log, promised."""
        self.clock.advance(0.5)
        jobs = engines.jobs
        jobs.settle(jobs.add(self._job_id(), "last", 60_000, _LONG_MS, b"the last job"))
        for name in engines.topics.names():
            topic = _topic(engines.topics, name)
            _, position = topic.add([b"the last", b"entry"])
            topic.settle(position)
            for group in [*topic.groups.state.groups][:1]:
                topic.groups.settle(topic.groups.deliver(group, b"the last", 1).position)
        queues = engines.queues
        queue, position = queues.create()
        queues.settle(position)
        self._queues.append(queue.rid)
        for rid in self._queues if self.store == "journal" else []:
            self._send(queues, rid)
        self._session(engines.store, 0, {b"last": b"the last value"})
        engines.store.switch_epoch()
        for log in engines.logs.values():
            log.append(b"the last record", until=Level.SYNCED)
        engines.audit.begin("ann", "127.0.0.1", "topics.trim", "the last", {})

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _job_id(self) -> bytes:
        return self.rng.randbytes(16)

    def _add(self, jobs: JobEngine, name: str, **more: object) -> bytes:
        id = self._job_id()
        given: dict[str, object] = {"ttr": 60_000, "ttl": _LONG_MS, "payload": self._text(), **more}
        jobs.settle(jobs.add(id, name, **given))  # type: ignore[arg-type]
        self.clock.advance(0.001)
        return id

    def _jobs(self, jobs: JobEngine, number: int) -> None:
        for count in range(20):
            self._add(jobs, f"many-{number % 2}", priority=count % 3)
        self._add(jobs, "unique", unique=f"key-{number}")
        self._add(jobs, "scheduled", time=self.clock.now_ns() + 10**15)
        self._add(jobs, "short", ttl=1000)
        deleted = self._add(jobs, "deleted")
        self._add(jobs, "retried", max_fails=3, backoff=1000)
        self._add(jobs, "dead", max_fails=1)
        self._add(jobs, "released")
        self._add(jobs, "done")
        self._add(jobs, "touched")
        leased = {name: jobs.lease([name])[0][0].id for name in ("retried", "dead", "released", "done", "touched")}
        jobs.fail(leased["retried"], b"not yet")
        jobs.fail(leased["dead"], b"not ever")
        if number % 2:
            jobs.redrive(leased["dead"])
        jobs.release(leased["released"], 500)
        jobs.complete(leased["done"], b"the result")
        jobs.touch(leased["touched"], 90_000)
        for job in jobs.lease([f"many-{number % 2}"], 12)[0]:
            jobs.complete(job.id, b"ok")
        jobs.delete(deleted)
        jobs.pause("many-0", pauses=number % 2 == 0)
        self.clock.advance(2)
        jobs.tick()
        jobs.push()
        jobs.settle(jobs.newest_position())

    # -- topics --------------------------------------------------------------------------------------------------------

    def _topics(self, topics: Topics, number: int) -> None:
        for name in _TOPICS:
            topic = topics.get_or_make(name)
            added: list[ids.EntryId] = []
            for _ in range(5):
                self.clock.advance(0.01)
                many, positions = topic.add_many([[b"field", self._text()] for _ in range(8)])
                added += many
                topic.settle(positions[-1])
            if name == b"orders":
                self._groups(topic, number)
                topic.delete(added[3:9])
            elif name == b"views":
                topic.delete(added[2:36])
            else:
                topic.trim_length(100)
            topic.push()
            topic.settle(topic.newest_position())
        for name in _ONE_FILE:
            topic = topics.get_or_make(name)
            topic.settle(topic.add([b"n", b"%d" % number])[1])
        gone = b"gone-%d" % number
        topics.get_or_make(gone).add([b"n", b"1"])
        topics.delete(gone)

    def _groups(self, topic: Topic, number: int) -> None:
        groups = topic.groups
        if not groups.has(b"workers"):
            groups.create(b"workers", ids.FIRST)
            groups.create(b"late", None)
        for consumer in (b"ann", b"bob"):
            shown = groups.deliver(b"workers", consumer, 12)
            groups.ack(b"workers", [id for id, _ in shown.entries[:5]])
            groups.settle(shown.position)
        groups.claim(b"workers", b"eve", [id for id, _ in [*groups.get(b"workers").pending.items()][:2]])
        position = groups.deliver(b"late", b"ann-%d" % number, 4).position
        groups.push()
        groups.settle(position)

    # -- queues --------------------------------------------------------------------------------------------------------

    def _send_and_receive(self, queues: QueueEngine, number: int) -> None:
        for kind in range(3):
            queue, position = queues.create(b"key" if kind else None, ttl=1 if kind == 2 else -1)
            queues.settle(position)
            self._queues.append(queue.rid)
            for _ in range(3 + 3 * kind):
                self._send(queues, queue.rid)
        for rid in self._queues[-8:]:
            for _ in range(8):
                self._send(queues, rid)
            self._receive(queues, rid, 5)
        self.clock.advance(2)
        if number == 1:
            full = self._queues[0]
            for _ in range(20):
                self._send(queues, full)
            queue, position = queues.create()
            queues.settle(queues.suspend(queue))
            gone, _ = queues.create()
            queues.keeper.settle(queues.send(gone, b"goes with its queue")[1])
            queues.remove_folder(gone, queues.delete(gone))
        QueuesUpkeep(queues).expire_all()
        for rid in self._queues[-3:-1]:  # so many that they are in two files of a journal
            for _ in range(3):
                for _ in range(9):
                    self._send(queues, rid)
                self._receive(queues, rid, 6)

    @staticmethod
    def _receive(queues: QueueEngine, rid: bytes, most: int) -> None:
        queue = queues.state.queues[rid]
        for _ in range(most):
            if (head := queues.head(queue)) is not None:
                queues.keeper.settle(queues.acknowledge(queue, head.id))

    def _send(self, queues: QueueEngine, rid: bytes) -> None:
        queue = queues.state.queues.get(rid)
        if queue is None or queue.is_off:
            return
        try:
            queues.keeper.settle(queues.send(queue, self._text(), b"flag")[1])
        except QuotaMet as error:
            queues.keeper.settle(error.position)

    # -- store ---------------------------------------------------------------------------------------------------------

    def _store(self, store: StoreEngine, number: int) -> None:
        rng = self.rng
        for _ in range(4):
            for channel in (0, 1, 2):
                values = {b"key %d" % rng.randrange(60): self._text() for _ in range(4)}
                gone = b"key %d" % rng.randrange(60)
                self._session(store, channel, {**values, gone: None, b"%d %d" % (number, channel): b"stays"})
            self.clock.advance(0.05)
            store.switch_epoch()
        session = store.channel(0).begin()
        session.put(5, b"in a storage", b"that is dropped")
        session.end()
        store.switch_epoch()
        session = store.channel(1).begin()
        session.remove_storage(5) if number % 2 else session.clear_storage(5)
        session.end()
        store.switch_epoch()
        if number < 10:
            store.request_rotation()

    @staticmethod
    def _session(store: StoreEngine, channel: int, values: Mapping[bytes, bytes | None]) -> None:
        session = store.channel(channel).begin()
        for key, value in values.items():
            if value is None:
                session.remove(1, key)
            else:
                session.put(1, key, value)
        session.end()

    # -- beside the logs -----------------------------------------------------------------------------------------------

    def _save_consumers(self, engines: _Engines) -> None:
        now = self.clock.now_ns()
        for folder in ("jobs", "logs/events", "topics/orders", "store"):
            path = join(DATA, folder)
            consumers.save(self.files, path, "reader", now - 10**9, _NEVER_NS, now_ns=now)

    def _note_run(self, number: int) -> None:
        now = self.clock.now_ns()
        id = f"20231114T22132{number}.000Z-clean-0000000{number}"
        process = runs.Process(pid=1, place="nowhere")
        run = runs.Run(id=id, kind="clean", state=runs.DONE, started_ns=now, updated_ns=now, process=process)
        self.files.write(join(runs.folder_of(DATA), id + runs.RECORD), msgspec.json.encode(run))

    def _text(self) -> bytes:
        return self.rng.randbytes(8).hex().encode() * self.rng.choice([1, 2, 5])


def _topic(topics: Topics, name: bytes) -> Topic:
    topic = topics.get(name)
    assert topic is not None
    return topic


def opened_queues(
    files: Files, clock: ManualClock, store: str, random: Callable[[int], bytes] | None = None
) -> QueueEngine:
    options = QueueOptions(store=store, quota=16, max_file_messages=17, most_open=8)
    return open_queues(
        join(DATA, "queues"),
        options=options,
        log=LogOptions(sync=ALWAYS),
        files=files,
        clock=clock,
        threaded=False,
        keeps_history=True,
        random=random or (lambda size: bytes(size)),
    )


def open_store(files: Files, clock: ManualClock) -> StoreEngine:
    engine = StoreEngine.open(join(DATA, "store"), files=files, clock=clock, options=STORE_OPTIONS)

    def nudge() -> None:
        engine.settle()
        if engine.is_urgent() and engine.failure is None and not engine.is_closed:
            engine.switch_epoch()

    engine.nudge = nudge
    return engine


def opened_plain(files: Files, clock: ManualClock, name: str) -> Log:
    folder = join(join(DATA, "logs"), folder_name(name.encode()))
    return Log.open(folder, options=_SMALL, files=files, clock=clock, threaded=False)


# -- all that can be read ----------------------------------------------------------------------------------------------

Content = dict[str, object]
"""By what it is of: a log, a topic, the groups of one, a queue. ``Refused`` where nothing could be read."""


def content(contents: Contents, part: str, store: str, now_ns: int, folders: Iterable[str] = ()) -> Content:
    """What a server that is started on the folder serves of one part, in whole. ``folders`` are there, too."""
    files, clock = MemoryFiles(contents), ManualClock(now_ns)
    for folder in folders:
        files.make_folder(folder)
    found: Content = {}
    with _reading(found, "the mark"):
        mark.check(files, DATA)
        found["the mark"] = "known"
    if part == "jobs":
        with _reading(found, "jobs"):
            engine = JobEngine.open(join(DATA, "jobs"), options=_SMALL, files=files, clock=clock, threaded=False)
            found["jobs"] = view_of(engine.state)
            engine.close()
    elif part == "topics":
        with _reading(found, "topics"):
            _read_topics(found, files, clock)
    elif part == "queues":
        with _reading(found, "queues"):
            _read_queues(found, files, clock, store)
    elif part == "store":
        with _reading(found, "store"):
            opened = open_store(files, clock)
            scanned = [(each.storage, each.key, each.value) for each in opened.snapshot().scan()]
            found["store"] = scanned, opened.last_epoch
            opened.close()
    elif part == "logs":
        for name in files.list(join(DATA, "logs")):
            with _reading(found, f"logs/{name}"):
                log = Log.open(join(join(DATA, "logs"), name), files=files, clock=clock, threaded=False)
                found[f"logs/{name}"] = [(record.time_ns, record.payload) for record in log.reader.read()]
                log.close()
    else:
        with _reading(found, "users"):
            found["users"] = users.load(DATA, files)
    for folder in sorted({path.rpartition("/consumers/")[0] for path in contents if "/consumers/" in path}):
        found[f"consumers of {folder}"] = [
            (one.name, one.position, one.streams, one.damage is None) for one in consumers.find(files, folder)
        ]
    return found


@contextmanager
def _reading(found: Content, what: str) -> Iterator[None]:
    try:
        yield
    except LaminaError as error:
        found[what] = Refused(type(error).__name__, f"{error} {error.as_dict()}")


def _read_topics(found: Content, files: Files, clock: ManualClock) -> None:
    topics = Topics.open(join(DATA, "topics"), options=_SMALL, files=files, clock=clock, threaded=False)
    found["names of topics"] = names = sorted(topics.names())
    for name in names:
        shown = name.decode()
        with _reading(found, f"topic {shown}"):
            topic = topics.get(name)
            if topic is None:
                continue
            state = topic.state
            facts = state.last_id, state.added, state.length, state.max_deleted
            found[f"topic {shown}"] = facts, topic.read(ids.FIRST)[0]
        with _reading(found, f"groups of {shown}"):
            topic = topics.get(name)
            if topic is None:
                continue
            found[f"groups of {shown}"] = {
                group.name: (
                    group.last_id,
                    group.read,
                    sorted(group.consumers),
                    [(id, each.consumer.name, each.deliveries) for id, each in sorted(group.pending.items())],
                )
                for group in topic.groups.state.groups.values()
            }
    with _reading(found, "topics being closed"):
        topics.close()


def _read_queues(found: Content, files: Files, clock: ManualClock, store: str) -> None:
    engine = opened_queues(files, clock, store)
    for rid, queue in engine.state.queues.items():
        what = f"queue {rid.hex()}"
        with _reading(found, what):
            facts = queue.rkey, queue.sid, queue.skey, queue.is_off, queue.created_day, queue.ttl
            got: list[tuple[object, ...]] = []
            while (head := engine.head(queue)) is not None and len(got) < 1000:
                got.append((head.id, head.ts, head.flags, head.body, head.ttl))
                engine.acknowledge(queue, head.id)
            found[what] = facts, got
    with _reading(found, "queues being closed"):
        engine.close()
