"""Families of commands: what one client may legally send without an end, while others want to be served."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.aggressor import Client
from bench.bystander_data import (
    BATCH,
    DONE,
    JOBS,
    PENDING,
    SPARSE,
    STORED,
    TOPICS,
    add_job,
    deliver,
    ids,
    job_id,
    key_of,
)
from bench.rivals import HOST
from bench.topic_entries import VALUE, id_of
from bench.topic_servers import TOPIC, command

BODY = b"v" * VALUE
READERS = 100


@dataclass(frozen=True)
class Lane:
    """One connection of a family."""

    number: int
    count: int
    """How many the family has."""
    entries: int
    port: int
    """Of the RESP door."""

    def part(self, share: float) -> int:
        return int(self.entries * share)

    def somewhere(self, turn: int) -> int:
        """The number of an entry, far from that of the turn before."""
        return turn * 611_953 % self.entries


Saying = Generator[None, None, None]
"""Goes on after each turn."""
Turns = Callable[[Client, Lane], Saying]


@dataclass(frozen=True)
class Family:
    what: str
    turns: Turns
    connections: int = 1
    data: str = "stream"
    """What the server has: see bystander_data.py."""
    in_redis: bool = True
    flags: Sequence[str] = ()
    """Of ``lamina serve``."""

    @property
    def is_workq(self) -> bool:
        return self.data == "jobs"


def said(make: Callable[[Lane, int], Iterable[bytes]]) -> Turns:
    """Commands by the number of the turn, which no two connections share; none: it is over."""

    def turns(to: Client, lane: Lane) -> Saying:
        turn = lane.number
        while commands := list(make(lane, turn)):
            to.say(*commands)
            turn += lane.count
            yield

    return turns


def always(*words: str | bytes) -> Turns:
    request = [command(*words)]
    return said(lambda lane, turn: request)


def _add(*options: str | bytes, topic: bytes = TOPIC) -> bytes:
    return command("XADD", topic, *options, "*", "f", BODY)


def _group(*words: str | bytes) -> bytes:
    return command("XGROUP", words[0], TOPIC, *words[1:])


def _while(is_left: bool, *commands: bytes) -> Iterable[bytes]:
    return commands if is_left else ()


# -- what needs answers ------------------------------------------------------------------------------------------------


def _readers(port: int, request: Callable[[int], bytes]) -> Callable[[], None]:
    """Connections that wait for the next entry again and again. Returns what ends them."""
    sockets = [socket.create_connection((HOST, port)) for _ in range(READERS)]
    requests = {each.fileno(): (each, request(number)) for number, each in enumerate(sockets)}
    is_over = threading.Event()

    def serve() -> None:
        with select.epoll() as poll, suppress(OSError):
            for handle, (each, first) in requests.items():
                each.sendall(first)
                poll.register(handle, select.EPOLLIN)
            while not is_over.is_set():
                for handle, _ in poll.poll(0.1):
                    each, again = requests[handle]
                    while len(each.recv(1 << 16)) == 1 << 16:
                        pass
                    each.sendall(again)
        for each in sockets:
            each.close()

    threading.Thread(target=serve, daemon=True).start()
    return is_over.set


def fan_out(to: Client, lane: Lane) -> Saying:
    to.say(_add(topic=b"fan"))
    end = _readers(lane.port, lambda number: command("XREAD", "BLOCK", "0", "STREAMS", "fan", "$"))
    try:
        yield from always("XADD", b"fan", "*", "f", BODY)(to, lane)
    finally:
        end()


def fan_out_groups(to: Client, lane: Lane) -> Saying:
    to.say(*(command("XGROUP", "CREATE", "fan", f"g{number}", "0", "MKSTREAM") for number in range(READERS)))
    last = "COUNT", "10", "BLOCK", "0", "NOACK", "STREAMS", "fan", ">"
    end = _readers(lane.port, lambda number: command("XREADGROUP", "GROUP", f"g{number}", "c", *last))
    try:
        yield from always("XADD", b"fan", "*", "f", BODY)(to, lane)
    finally:
        end()


def acknowledge(count: int) -> Turns:
    def turns(to: Client, lane: Lane) -> Saying:
        while True:
            found = to.ask_all(deliver("fresh", count))[0]
            if found:
                to.ask("XACK", TOPIC, "fresh", *(id for id, _ in found[0][1]))
            else:
                to.say(_group("SETID", "fresh", "0"))
            yield

    return turns


def queue_cycle(to: Client, lane: Lane) -> Saying:
    """A queue on a stream: what is added goes through a group, and is deleted."""
    topic = f"queue-{lane.number}"
    to.say(command("XGROUP", "CREATE", topic, "g", "0", "MKSTREAM"))
    while True:
        added = to.ask_all(*[_add(topic=topic.encode())] * 100)
        to.say(command("XREADGROUP", "GROUP", "g", "c", "COUNT", "100", "STREAMS", topic, ">"))
        to.say(command("XACK", topic, "g", *added), command("XDEL", topic, *added))
        yield


def scan(to: Client, lane: Lane) -> Saying:
    cursor = b"0"
    while True:
        cursor, _ = to.ask("SCAN", cursor)
        yield


def q_cycle(to: Client, lane: Lane) -> Saying:
    rid, sid = to.ask("Q.NEW")
    while True:
        id = to.ask("Q.SEND", sid, BODY)
        to.say(command("Q.GET", rid), command("Q.ACK", rid, id))
        yield


def q_new(to: Client, lane: Lane) -> Saying:
    while True:
        rid, sid = to.ask("Q.NEW")
        to.say(command("Q.SEND", sid, BODY), command("Q.DEL", rid))
        yield


def q_dump(to: Client, lane: Lane) -> Saying:
    while True:
        made = to.ask_all(*[command("Q.NEW")] * 20)
        to.say(*(command("Q.SEND", sid, BODY) for _, sid in made), command("L.DUMP", "queues"))
        yield


def s_asof(to: Client, lane: Lane) -> Saying:
    """The epoch moves, so that each read is of a moment of its own."""
    while True:
        epoch = to.ask("S.WRITE", "1", "PUT", key_of(lane.number), BODY)
        to.say(command("S.GET", "1", key_of(lane.somewhere(int(epoch))), "ASOF", str(epoch)))
        yield


def jobs_cycle(to: Client, lane: Lane) -> Saying:
    queue, number = b"own-%d" % lane.number, 0
    while True:
        made = [job_id(number + each, 1 + lane.number) for each in range(16)]
        to.say(*(add_job(id, queue) for id in made))
        to.say(b"lease %b 0 -max=16\r\n" % queue)
        to.say(*(b"complete %b 0\r\n\r\n" % id for id in made))
        number += len(made)
        yield


# -- all of them -------------------------------------------------------------------------------------------------------


def _write(lane: Lane, turn: int, *last: str) -> bytes:
    """A session of ten entries of the store."""
    words: list[str | bytes] = []
    for number in range(10):
        words += ["PUT", key_of((lane.somewhere(turn) + number) % lane.part(STORED)), BODY]
    return command("S.WRITE", "1", *words, *last)


def _read_group(consumer: str, start: str | bytes, *count: str) -> bytes:
    return command("XREADGROUP", "GROUP", "g", consumer, *count, "STREAMS", TOPIC, start)


def _usual_queue(lane: Lane, turn: int) -> list[bytes]:
    group = f"g{turn}"
    return [
        command("XRANGE", TOPIC, "-", "+"),
        command("XRANGE", TOPIC, "-", "+", "COUNT", "1"),
        command("XREAD", "COUNT", "1", "STREAMS", TOPIC, "0"),
        command("XINFO", "STREAM", TOPIC),
        _group("CREATE", group, "0"),
        command("XREADGROUP", "GROUP", group, "c", "COUNT", "1", "STREAMS", TOPIC, ">"),
        command("XTRIM", TOPIC, "MINID", "5"),
        _group("DESTROY", group),
    ]


def _sparse(lane: Lane, turn: int) -> list[bytes]:
    return [_read_group("c", "0"), command("XAUTOCLAIM", TOPIC, "g", "c", "0", "0", "COUNT", "1000")]


def _wrapped(lane: Lane, turn: int, each: int) -> list[bytes]:
    """Gives the group everything once more when all was delivered."""
    return [_group("SETID", "fresh", "0")] if turn * each % lane.entries < each else []


_XADD = {
    "xadd": Family("XADD", always("XADD", TOPIC, "*", "f", BODY), 4),
    "xadd_maxlen": Family(
        "XADD MAXLEN = as many as there are", said(lambda lane, n: [_add("MAXLEN", "=", str(lane.entries))]), 4
    ),
    "xadd_maxlen_about": Family(
        "XADD MAXLEN ~ as many as there are", said(lambda lane, n: [_add("MAXLEN", "~", str(lane.entries))]), 4
    ),
    "xadd_minid": Family("XADD MINID of one more each time", said(lambda lane, n: [_add("MINID", "=", id_of(n))]), 4),
    "xadd_pipelined": Family("100 XADD at once", said(lambda lane, n: [_add()] * 100), 4),
}
_READING = {
    "xrange_full": Family("XRANGE - +", always("XRANGE", TOPIC, "-", "+")),
    "xrange_pages": Family(
        "XRANGE COUNT 1000 here and there",
        said(lambda lane, n: [command("XRANGE", TOPIC, id_of(lane.somewhere(n)), "+", "COUNT", "1000")]),
        4,
    ),
    "xrange_ten": Family(
        "XRANGE COUNT 10 here and there",
        said(lambda lane, n: [command("XRANGE", TOPIC, id_of(lane.somewhere(n)), "+", "COUNT", "10")]),
        4,
    ),
    "xrevrange_full": Family("XREVRANGE + -", always("XREVRANGE", TOPIC, "+", "-")),
    "xrevrange_pages": Family(
        "XREVRANGE COUNT 1000 here and there",
        said(lambda lane, n: [command("XREVRANGE", TOPIC, id_of(lane.somewhere(n)), "-", "COUNT", "1000")]),
        4,
    ),
    "xrevrange_one": Family("XREVRANGE + - COUNT 1", always("XREVRANGE", TOPIC, "+", "-", "COUNT", "1"), 4),
    "xread_full": Family("XREAD of all", always("XREAD", "STREAMS", TOPIC, "0")),
    "xread_pages": Family(
        "XREAD COUNT 1000 from the start on",
        said(lambda lane, n: [command("XREAD", "COUNT", "1000", "STREAMS", TOPIC, id_of(n * 1000 % lane.entries))]),
        4,
    ),
    "xread_tail": Family(
        "XREAD COUNT 100 of the newest",
        said(lambda lane, n: [command("XREAD", "COUNT", "100", "STREAMS", TOPIC, id_of(lane.entries - 101))]),
        4,
    ),
    "xread_fan_out": Family(f"XADD to {READERS} that wait in XREAD BLOCK", fan_out),
    "xlen": Family("XLEN", always("XLEN", TOPIC), 4),
    "xinfo_stream": Family("XINFO STREAM", always("XINFO", "STREAM", TOPIC), 4),
    "xinfo_full": Family("XINFO STREAM FULL", always("XINFO", "STREAM", TOPIC, "FULL"), 4),
    "xinfo_full_all": Family("XINFO STREAM FULL COUNT 0", always("XINFO", "STREAM", TOPIC, "FULL", "COUNT", "0")),
    "xinfo_groups": Family("XINFO GROUPS", always("XINFO", "GROUPS", TOPIC), 4),
    "xinfo_consumers": Family("XINFO CONSUMERS", always("XINFO", "CONSUMERS", TOPIC, "g"), 4),
}
_CHANGING = {
    "xdel_front": Family(
        "XDEL of the 100 oldest",
        said(
            lambda lane, n: _while(
                n * 100 < lane.entries, command("XDEL", TOPIC, *ids(n * 100, min(n * 100 + 100, lane.entries)))
            )
        ),
        4,
    ),
    "xdel_sparse": Family(
        "XDEL of 100 that are far apart",
        said(
            lambda lane, n: _while(
                n < lane.entries // 100, command("XDEL", TOPIC, *ids(n, lane.entries, lane.entries // 100))
            )
        ),
        4,
    ),
    "xtrim": Family(
        "XTRIM MAXLEN = ten fewer each time",
        said(
            lambda lane, n: _while(
                n * 10 < lane.entries, command("XTRIM", TOPIC, "MAXLEN", "=", str(lane.entries - n * 10))
            )
        ),
        4,
    ),
    "xtrim_tenths": Family(
        "XTRIM MAXLEN = a tenth fewer each time",
        said(lambda lane, n: _while(n < 100, command("XTRIM", TOPIC, "MAXLEN", "=", str(int(lane.entries * 0.9**n))))),
    ),
    "xsetid": Family(
        "XSETID, larger each time", said(lambda lane, n: [command("XSETID", TOPIC, f"9999999999999-{n}")])
    ),
    "queue_cycle": Family("XADD, XREADGROUP, XACK and XDEL of 100 at a time", queue_cycle, 4),
    "usual_queue": Family(
        f"{DONE} of the entries went through a queue, one is left: reads and XINFO", said(_usual_queue), data="done"
    ),
    "one_stays": Family(
        "all but the oldest entry were deleted: XRANGE, XADD, XINFO",
        said(
            lambda lane, n: [
                command("XRANGE", TOPIC, "-", "+", "COUNT", "10"),
                _add(),
                command("XINFO", "STREAM", TOPIC),
            ]
        ),
        data="stays",
    ),
}
_GROUPS = {
    "xgroup_create": Family(
        "XGROUP CREATE and DESTROY",
        said(lambda lane, n: [_group("CREATE", f"g{n}", "0"), _group("DESTROY", f"g{n}")]),
        4,
    ),
    "xgroup_destroy": Family(
        "XGROUP DESTROY with 10 000 pending",
        said(
            lambda lane, n: [
                _group("CREATE", f"g{n}", "0"),
                command("XREADGROUP", "GROUP", f"g{n}", "c", "COUNT", "10000", "STREAMS", TOPIC, ">"),
                _group("DESTROY", f"g{n}"),
            ]
        ),
    ),
    "xgroup_delconsumer": Family(
        "XGROUP DELCONSUMER with 1000 pending",
        said(lambda lane, n: [*_wrapped(lane, n, BATCH), deliver("fresh", BATCH), _group("DELCONSUMER", "fresh", "c")]),
    ),
    "xreadgroup_new": Family(
        "XREADGROUP COUNT 100 of what is new", said(lambda lane, n: [*_wrapped(lane, n, 100), deliver("fresh", 100)]), 4
    ),
    "xreadgroup_new_all": Family(
        "XREADGROUP of all there is",
        said(
            lambda lane, n: [
                _group("SETID", "fresh", "0"),
                command("XREADGROUP", "GROUP", "fresh", "c", "STREAMS", TOPIC, ">"),
            ]
        ),
    ),
    "xreadgroup_history": Family(
        "XREADGROUP COUNT 100 of what is pending",
        said(lambda lane, n: [_read_group("c", id_of(lane.somewhere(n) % lane.part(PENDING)), "COUNT", "100")]),
        4,
    ),
    "xreadgroup_history_all": Family(
        "XREADGROUP of all that is pending", said(lambda lane, n: [_read_group("c", "0")])
    ),
    "xreadgroup_fan_out": Family(f"XADD to {READERS} groups that wait in XREADGROUP BLOCK", fan_out_groups),
    "xack": Family("XREADGROUP COUNT 100 and XACK", acknowledge(100), 4),
    "xack_many": Family("XREADGROUP COUNT 10000 and XACK", acknowledge(10_000)),
    "xpending": Family("XPENDING", always("XPENDING", TOPIC, "g"), 4),
    "xpending_range": Family("XPENDING - + 1000", always("XPENDING", TOPIC, "g", "-", "+", "1000"), 4),
    "xpending_idle": Family(
        "XPENDING IDLE so long that none is", always("XPENDING", TOPIC, "g", "IDLE", "99999999", "-", "+", "1000")
    ),
    "xclaim": Family(
        "XCLAIM of 100",
        said(
            lambda lane, n: [
                command(
                    "XCLAIM", TOPIC, "g", "c", "0", *ids((first := lane.somewhere(n) % lane.part(PENDING)), first + 100)
                )
            ]
        ),
        4,
    ),
    "xclaim_justid": Family(
        "XCLAIM JUSTID of 2000 again and again, so that the log of the groups is written anew",
        said(
            lambda lane, n: [command("XCLAIM", TOPIC, "g", "c", "0", *ids(0, min(2000, lane.part(PENDING))), "JUSTID")]
        ),
    ),
    "xautoclaim": Family(
        "XAUTOCLAIM COUNT 100",
        said(
            lambda lane, n: [
                command("XAUTOCLAIM", TOPIC, "g", "c", "0", id_of(n * 100 % lane.part(PENDING)), "COUNT", "100")
            ]
        ),
        4,
    ),
    "sparse_pending": Family(
        f"{SPARSE} of the entries, one in a hundred of them pending: XREADGROUP of all that is, XAUTOCLAIM COUNT 1000",
        said(_sparse),
        data="sparse",
    ),
}
_KEYS = {
    "scan": Family("SCAN", scan, data="many"),
    "keys": Family("KEYS *", always("KEYS", "*"), data="many"),
    "dbsize": Family("DBSIZE", always("DBSIZE"), 4, data="many"),
    "first_use": Family(
        "XLEN of one topic after the other",
        said(lambda lane, n: _while(n < lane.part(TOPICS), command("XLEN", f"topic-{n}"))),
        4,
        data="many",
    ),
    "open_topics": Family(
        "XADD to a new topic each time", said(lambda lane, n: [_add(topic=b"new-%d" % n)]), 4, data="many"
    ),
    "del": Family(
        "DEL of one topic after the other",
        said(lambda lane, n: _while(n < lane.part(TOPICS), command("DEL", f"topic-{n}"))),
        4,
        data="many",
    ),
    "rename": Family(
        "RENAME of one topic after the other",
        said(lambda lane, n: _while(n < lane.part(TOPICS), command("RENAME", f"topic-{n}", f"renamed-{n}"))),
        4,
        data="many",
    ),
    "flushall": Family(
        "20 new topics and FLUSHALL",
        said(lambda lane, n: [*(_add(topic=b"new-%d" % each) for each in range(20)), command("FLUSHALL")]),
        data="many",
    ),
    "memory_usage": Family("MEMORY USAGE", always("MEMORY", "USAGE", TOPIC), 4),
    "info": Family("INFO everything", always("INFO", "everything"), 4),
    "why": Family("L.WHY", always("L.WHY", TOPIC), in_redis=False),
    "exec_adds": Family(
        "20 XADD between MULTI and EXEC", said(lambda lane, n: [command("MULTI"), *[_add()] * 20, command("EXEC")]), 4
    ),
    "exec_reads": Family(
        "100 XRANGE COUNT 100 here and there between MULTI and EXEC",
        said(
            lambda lane, n: [
                command("MULTI"),
                *(
                    command("XRANGE", TOPIC, id_of(lane.somewhere(n * 100 + each)), "+", "COUNT", "100")
                    for each in range(100)
                ),
                command("EXEC"),
            ]
        ),
        4,
    ),
}
_JOURNAL = "--queues", "journal"
_QUEUES = {
    "q_memory": Family("Q.SEND, Q.GET and Q.ACK, store memory", q_cycle, 4, in_redis=False),
    "q_memory_new": Family("Q.NEW, Q.SEND and Q.DEL, store memory", q_new, 4, in_redis=False),
    "q_memory_dump": Family("20 new queues and L.DUMP queues", q_dump, in_redis=False),
    "q_journal": Family("Q.SEND, Q.GET and Q.ACK, store journal", q_cycle, 4, in_redis=False, flags=_JOURNAL),
    "q_journal_new": Family("Q.NEW, Q.SEND and Q.DEL, store journal", q_new, 4, in_redis=False, flags=_JOURNAL),
}
_STORE = {
    "s_write": Family("S.WRITE of 10", said(lambda lane, n: [_write(lane, n)]), 4, "store", in_redis=False),
    "s_write_pipelined": Family(
        "16 S.WRITE of 10 at once",
        said(lambda lane, n: [_write(lane, n * 16 + each) for each in range(16)]),
        4,
        "store",
        in_redis=False,
    ),
    "s_write_nowait": Family(
        "16 S.WRITE NOWAIT of 10 at once",
        said(lambda lane, n: [_write(lane, n * 16 + each, "NOWAIT") for each in range(16)]),
        4,
        "store",
        in_redis=False,
    ),
    "s_get": Family(
        "S.GET here and there",
        said(lambda lane, n: [command("S.GET", "1", key_of(lane.somewhere(n) % lane.part(STORED)))]),
        4,
        "store",
        in_redis=False,
    ),
    "s_get_asof": Family("S.WRITE, and S.GET ASOF its epoch", s_asof, data="store", in_redis=False),
    "s_scan": Family(
        "S.SCAN COUNT 10000 here and there",
        said(
            lambda lane, n: [
                command("S.SCAN", "1", "FROM", key_of(lane.somewhere(n) % lane.part(STORED)), "COUNT", "10000")
            ]
        ),
        4,
        "store",
        in_redis=False,
    ),
    "s_storages": Family("S.STORAGES", always("S.STORAGES"), data="store", in_redis=False),
    "s_rotate": Family(
        "S.WRITE of 10 and S.ROTATE",
        said(lambda lane, n: [_write(lane, n), command("S.ROTATE")]),
        data="store",
        in_redis=False,
    ),
    "s_compact": Family(
        "100 S.WRITE of 10 and S.COMPACT",
        said(lambda lane, n: [*(_write(lane, n * 100 + each) for each in range(100)), command("S.COMPACT")]),
        data="store",
        in_redis=False,
    ),
}
_JOBS = {
    "jobs": Family("add, lease and complete of 16 jobs at a time", jobs_cycle, 4, "jobs", in_redis=False),
    "jobs_lease": Family(
        "lease of 100 jobs",
        said(lambda lane, n: _while(n * 100 < lane.part(JOBS), b"lease mail 0 -max=100\r\n")),
        4,
        "jobs",
        in_redis=False,
    ),
    "jobs_inspect": Family(
        "inspect of jobs, queues and the server",
        said(
            lambda lane, n: [
                b"inspect jobs mail %d 100\r\n" % (lane.somewhere(n) % lane.part(JOBS)),
                b"inspect state mail ready %d 100\r\n" % (lane.somewhere(n) % lane.part(JOBS)),
                b"inspect queue-views 0 100\r\n",
                b"inspect server\r\n",
            ]
        ),
        4,
        "jobs",
        in_redis=False,
    ),
}

FAMILIES: dict[str, Family] = {
    **_XADD,
    **_READING,
    **_CHANGING,
    **_GROUPS,
    **_KEYS,
    **_QUEUES,
    **_STORE,
    **_JOBS,
}
