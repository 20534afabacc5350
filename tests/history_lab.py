"""A data folder with a random history of every engine, made by the engines themselves, and what they report of it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import lamina
from lamina.clock import ManualClock
from lamina.engines.jobs.views import JobView
from lamina.engines.queues.message import NO_TTL
from lamina.engines.topics import ids
from lamina.engines.topics.retention import parse
from lamina.engines.topics.topic import Topic
from lamina.errors import InputError, JobError, QueueError
from lamina.log import LogOptions
from lamina.log.sync import ALWAYS
from lamina.log.writer import Log
from lamina.pipeline.compaction.distributed import compact_with
from lamina.pipeline.running import LocalRunner

START = 1_700_000_000 * 10**9
OPTIONS = LogOptions(segment_bytes=2000, sync=ALWAYS)

_REFUSED = (JobError, InputError, QueueError, ValueError)

Seen = dict[str, Any]


def open_data(path: Path, clock: ManualClock, history_s: float = 3600) -> lamina.Data:
    return lamina.open(
        path,
        history_s=history_s,
        clock=clock,
        jobs=OPTIONS,
        topics=OPTIONS,
        queues=lamina.QueueOptions(quota=6, ttl_s=600, dump_every_s=0, expire_every_s=0),
        queue_log=OPTIONS,
        store=lamina.StoreOptions(epoch_ms=1, part_bytes=1024),
    )


class History:
    """Use ``step`` and ``seen``; ``close`` at the end."""

    def __init__(self, path: Path, seed: int = 1, *, history_s: float = 3600) -> None:
        self.path, self.draw, self.clock, self.history_s = path, random.Random(seed), ManualClock(START), history_s
        self.queues: list[tuple[str, str]] = []
        self.jobs = 0
        self.takes_away = True
        """Entries of topics are deleted and trimmed."""
        self.data = open_data(path, self.clock, history_s)

    def close(self) -> None:
        self.data.close()

    def reopen(self) -> None:
        self.close()
        self.data = open_data(self.path, self.clock, self.history_s)

    def steps(self, count: int, *, upkeep: bool = False) -> None:
        for _ in range(count):
            self.step(upkeep=upkeep)

    def step(self, *, upkeep: bool = False) -> None:
        self.clock.advance(self.draw.choice((0.001, 0.4, 5)))
        actions = [self._job, self._job, self._topic, self._topic, self._group, self._queue, self._queue, self._store]
        if upkeep and self.draw.random() < 0.08:
            actions = [self._upkeep]
        with suppress(*_REFUSED):  # what does not fit is refused, and leaves no trace
            self.draw.choice([*actions, self._plain])()

    # -- engines -----------------------------------------------------------------------------------------------------

    def _job(self) -> None:
        draw, jobs = self.draw, self.data.jobs
        engine, choice = jobs.engine, draw.random()
        engine.tick()
        known = list(engine.state.jobs)
        if choice < 0.4 or not known:
            self.jobs += 1
            ttl = draw.choice((3_000, 60_000, 86_400_000))
            id, unique = self.jobs.to_bytes(16, "big"), draw.choice(("", f"k{self.jobs}"))
            fails, attempts = draw.choice((0, 3)), draw.choice((0, 2))
            engine.add(id, draw.choice("ab"), 4000, ttl, b"p", max_fails=fails, max_attempts=attempts, unique=unique)
        elif choice < 0.6:
            engine.lease(["a", "b"], 2)
        elif choice < 0.95:
            id = draw.choice(known)
            change = draw.choice(("complete", "fail", "fail", "delete", "release", "touch", "redrive"))
            given = {"complete": (b"done",), "fail": (b"no",), "touch": (9000,)}
            getattr(engine, change)(id, *given.get(change, ()))
        else:
            engine.pause("a", pauses=draw.random() < 0.5)
        self.settle_jobs()

    def settle_jobs(self) -> None:
        engine = self.data.jobs.engine
        position = engine.all_written()
        if position:
            log_of(engine).wait(position)

    def _name(self) -> str:
        return self.draw.choice(("orders", "a/b"))

    def _of(self, name: str) -> Topic:
        topic = self.data.topic(name).find()
        if topic is None:
            raise ValueError("not there yet")
        return topic

    def _topic(self) -> None:
        draw, name = self.draw, self._name()
        choice, known = draw.random(), self.data.topic(name).find()
        if known is None or choice < 0.7 or not self.takes_away:
            self.data.topic(name).publish_many([{"n": str(draw.random())} for _ in range(draw.randint(1, 4))])
            return
        there = [id for id, _ in known.read(ids.FIRST)[0]]
        if choice < 0.85 and there:
            known.sync(known.delete([draw.choice(there)])[1])
        elif choice < 0.95:
            known.sync(known.trim_length(draw.randint(0, 20))[1])
        else:
            known.sync(known.set_id(ids.EntryId(known.state.last_id + 5)))

    def _group(self) -> None:
        draw, topic = self.draw, self._of(self._name())
        groups, name = topic.groups, draw.choice((b"g", b"h"))
        if not groups.has(name):
            groups.create(name, ids.FIRST)
        elif draw.random() < 0.5:
            groups.deliver(name, draw.choice((b"c", b"d")), draw.randint(1, 3))
        elif draw.random() < 0.9:
            pending = list(groups.state.groups[name].pending.keys())
            groups.ack(name, draw.sample(pending, min(len(pending), 2)))
        else:
            groups.destroy(name)
        groups.push()
        log_of(groups).wait(groups.all_written())

    def _queue(self) -> None:
        draw, queues = self.draw, self.data.queues
        if not self.queues or draw.random() < 0.1:
            made = queues.create(ttl=draw.choice((None, 0, 30)))
            self.queues.append((made.rid, made.sid))
        rid, sid = draw.choice(self.queues)
        choice = draw.random()
        if choice < 0.55:
            queues.queue(sid).send(draw.randbytes(20), ttl=draw.choice((None, None, 0, 10)))
        elif choice < 0.95:
            held = queues.queue(rid)
            if (message := held.receive()) is not None:
                held.ack(message)
        else:
            self.queues.remove((rid, sid))
            queues.queue(rid).delete()

    def _store(self) -> None:
        draw = self.draw
        with self.data.store.session() as session:
            for _ in range(draw.randint(1, 3)):
                key = b"key%d" % draw.randint(0, 12)
                if draw.random() < 0.75:
                    session.put(draw.randint(1, 2), key, draw.randbytes(30))
                else:
                    session.remove(draw.randint(1, 2), key)

    def _plain(self) -> None:
        self.data.log("plain", OPTIONS).append(self.draw.randbytes(60), until=lamina.Level.SYNCED)

    def _upkeep(self) -> None:
        choice = self.draw.randint(0, 5)
        if choice == 0:
            self.settle_jobs()
            log_of(self.data.jobs.engine).rotate()
            self.data.jobs.clean()
        elif choice == 1:
            self.data.topics.upkeep.shed(b"orders", parse("length:10"))
        elif choice == 2:
            self._of("orders").groups.compact()
        elif choice == 3:
            self.data.queues.dump()
        elif choice == 4:
            self.data.store.rotate()
            self.data.store.compact(compact=compact_with(LocalRunner()))
            self.data.store.clean_up()
        else:
            self.reopen()

    def moment(self) -> tuple[int, Seen]:
        """A time, and what the engines report at it; whatever comes next is later."""
        engine = self.data.jobs.engine
        while engine.tick() == 0.0:
            pass
        self.settle_jobs()
        self.clock.advance(0.0001)
        then = self.clock.now_ns(), seen(self.data)
        self.clock.advance(0.0001)
        return then


def log_of(engine: Any) -> Log:
    assert isinstance(engine.log, Log)
    return engine.log


def seen(data: lamina.Data) -> Seen:
    """All that the engines report."""
    engine = data.jobs.engine
    while engine.tick() == 0.0:
        pass
    found: Seen = {"jobs": sorted((JobView.of(job) for job in engine.state.jobs.values()), key=lambda job: job.id)}
    for name in data.topics.names():
        topic = data.topic(name).find()
        assert topic is not None
        state = topic.state
        facts = (state.last_id, state.added, state.length, state.max_deleted)
        found[f"topic {name}"] = facts, [(id, list(fields)) for id, fields in topic.read(ids.FIRST)[0]]
        found[f"groups {name}"] = {
            group.name: (
                group.last_id,
                group.read,
                {consumer.name: consumer.seen for consumer in group.consumers.values()},
                {id: (one.consumer.name, one.time, one.deliveries) for id, one in group.pending.items()},
            )
            for group in topic.groups.state.groups.values()
        }
    found["queues"] = queues_of(data, engine.clock.now_ns() // 10**9)
    store = data.store
    found["store"] = {
        (storage, one.key): (one.value, one.version) for storage in (1, 2) for one in store.snapshot().scan(storage)
    }
    found["plain"] = [(record.time_ns, record.payload) for record in data.log("plain", OPTIONS).reader.read()]
    return found


def queues_of(data: lamina.Data, now: int) -> dict[bytes, tuple[object, ...]]:
    """Without messages that have expired: nobody is given those, whether they are there or not."""
    found: dict[bytes, tuple[object, ...]] = {}
    for rid, queue in data.queues.engine.state.queues.items():
        ttl = 600 if queue.ttl == NO_TTL else queue.ttl
        kept = [each for each in queue.messages if not each.has_expired(now, ttl)]
        messages = [(each.id, each.ts, each.flags, each.body, each.ttl) for each in kept]
        found[rid] = (queue.sid, queue.rkey, queue.skey, queue.is_off, queue.created_day, queue.ttl, messages)
    return found
