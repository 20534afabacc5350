"""A store of queues with the smallest engine that there can be, and verbs for what tests do to it."""

from __future__ import annotations

import random

from lamina.engines.logged import Logged
from lamina.engines.queues import codec, store_files
from lamina.engines.queues.dumping import Dumper
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.restoring import Restored, restore
from lamina.engines.queues.state import State
from lamina.log import LogOptions, kernel, lock
from lamina.log.files import Files
from lamina.log.formats import QUEUE_STORE
from lamina.log.naming import STORED
from lamina.log.sync import ALWAYS, Sync
from lamina.log.writer import Log
from lamina.testing import ManualClock

FOLDER = "queues"
NOW = 1_700_000_000
TTL = 21 * 86400
START_NS = 1_600_000_000 * 10**9

Seen = dict[bytes, tuple[object, ...]]


def seen(state: State) -> Seen:
    """All that a client could find out about the queues."""
    return {
        rid: (
            queue.rkey,
            queue.sid,
            queue.skey,
            queue.is_off,
            queue.created_day,
            queue.ttl,
            tuple((each.id, each.ts, each.flags, each.body, each.ttl) for each in queue.messages),
        )
        for rid, queue in state.queues.items()
    }


def id_of(name: str) -> bytes:
    return name.encode().ljust(24, b".")


def create(name: str, *, skey: bytes | None = None, is_off: bool = False, ttl: int = -1) -> bytes:
    return codec.create(Queue(id_of(name), b"rkey", id_of("sender of " + name), skey, is_off, 86400, ttl))


def message(name: str, id: str, *, ts: int = NOW - 3600, body: bytes = b"body", ttl: int = -1) -> bytes:
    return codec.message(id_of(name), Message(id_of(id), ts, b"", body, ttl))


def marker(name: str, id: str, *, ts: int = NOW - 3600) -> bytes:
    return codec.message(id_of(name), Message(id_of(id), ts, b"", None))


def ack(name: str, id: str) -> bytes:
    return codec.ack(id_of(name), id_of(id))


def expire(name: str, id: str) -> bytes:
    return codec.expire(id_of(name), id_of(id))


def delete(name: str) -> bytes:
    return codec.delete(id_of(name))


def file_of(*records: bytes, first_ns: int = START_NS) -> bytes:
    """A file of the store as bytes, without marks of the kernel."""
    return QUEUE_STORE.header + kernel.encode_many(first_ns, records)


def dump_of(*records: bytes, first_ns: int = START_NS) -> bytes:
    queues = sum(codec.decode(record)[0] == codec.CREATE for record in records)
    return file_of(*records, codec.end(queues, len(records) - queues), first_ns=first_ns)


def messages_of(state: State, name: str) -> list[bytes]:
    return [each.id.rstrip(b".") for each in state.queues[id_of(name)].messages]


class StoreEngine(Logged):
    """Applies records that it is given."""

    def __init__(self, files: Files, folder: str, clock: ManualClock, restored: Restored, log: Log) -> None:
        super().__init__(log, clock)
        self.files, self.folder, self.restored = files, folder, restored
        self.state = restored.state

    @classmethod
    def open(
        cls,
        files: Files,
        folder: str,
        clock: ManualClock,
        *,
        sync: Sync = ALWAYS,
        ttl: int = TTL,
        force: bool = False,
    ) -> StoreEngine:
        files.make_folder(folder)
        held = lock.take(files, folder, STORED.lock_name)
        try:
            restored = restore(files, folder, now=clock.now_ns() // 10**9, ttl=ttl, force=force)
            log = Log.start(
                folder,
                store_files.log_name(restored.next_number),
                last=restored.last_time,
                held=held,
                options=LogOptions(sync=sync, segment_bytes=1 << 60),
                family=STORED,
                format=QUEUE_STORE,
                files=files,
                clock=clock,
                threaded=False,
            )
        except BaseException:
            held.release()
            raise
        return cls(files, folder, clock, restored, log)

    def rebuild(self) -> None:
        self.state = restore(self.files, self.folder, now=0, ttl=0).state

    def do(self, *records: bytes) -> int:
        """Append and apply records. Returns the position of the last."""
        position = 0
        with self.lock:
            for record in records:
                position = self._append(record)
                self.state.apply(record)
        return position

    def close(self) -> None:
        self.push()
        self.log.close()


class StoreLab:
    """Files, clock, engine and dumper of one store."""

    def __init__(self, files: Files, folder: str = FOLDER, *, sync: Sync = ALWAYS, force: bool = False) -> None:
        self.files, self.folder = files, folder
        self.clock = ManualClock(NOW * 10**9)
        self.engine = StoreEngine.open(files, folder, self.clock, sync=sync, force=force)
        self.dumper = self.make_dumper(force=force)

    def make_dumper(self, **more: object) -> Dumper:
        return Dumper(self.engine, self.files, self.folder, self.clock, ttl=TTL, piece=1000, **more)  # type: ignore[arg-type]

    def do(self, *records: bytes) -> None:
        """Records, promised."""
        self.engine.settle(self.engine.do(*records))

    def names(self) -> list[str]:
        """Files of the store, without companions."""
        return sorted(name for name in self.files.list(self.folder) if name.endswith((".log", ".dump", ".saving")))

    def seen(self) -> Seen:
        return seen(self.engine.state)


def random_records(rng: random.Random, count: int) -> list[bytes]:
    """Records as they might come, and some that no server writes: duplicates, acknowledgements out of order."""
    state = State()
    made: list[bytes] = []
    while len(made) < count:
        record = _random_record(rng, state, len(made))
        state.apply(record)
        made.append(record)
    return made


def _random_record(rng: random.Random, state: State, number: int) -> bytes:
    name = rng.choice("abcd")
    queue = state.queues.get(id_of(name))
    if queue is None and rng.random() < 0.5:
        return create(name, is_off=rng.random() < 0.2, ttl=rng.choice([-1, -1, 0, 1000]))
    waiting = [each.id for each in queue.messages] if queue is not None else []
    known = rng.choice(waiting) if waiting and rng.random() < 0.3 else id_of(f"m{number}")
    act = rng.random()
    if act < 0.5:
        age, own = rng.choice([10, TTL, TTL + 1, 999, 1001]), rng.choice([-1, -1, -1, 0, 5])
        body = rng.randbytes(rng.choice([0, 10, 700]))
        return codec.message(id_of(name), Message(known, NOW - age, b"flags", body, own))
    if act < 0.8:
        head = waiting[0] if waiting and rng.random() < 0.7 else known
        return (codec.ack if rng.random() < 0.8 else codec.expire)(id_of(name), head)
    if act < 0.85:
        return codec.message(id_of(name), Message(known, NOW - 3600, b"", None))
    if act < 0.91:
        return codec.secure(id_of(name), b"key %d" % number)
    if act < 0.95:
        return codec.suspend(id_of(name))
    return delete(name) if act < 0.98 else create(name)
