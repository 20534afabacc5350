"""The commands of the store, ``S.*``: sessions of changes, entries by key, now or as of an earlier moment.

What is read is durable. A client also sees what it wrote itself: its reads wait until that is durable. What goes
through many entries, or files, is done in a thread (store_house.py); commands behind it on the same connection wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from typing import Any, Final
from weakref import ref

from lamina.engines import loops
from lamina.engines.store.aio import rotated
from lamina.engines.store.api import StorageInfo, storages_of
from lamina.engines.store.entries import Change
from lamina.engines.store.view import Found, Snapshot
from lamina.errors import LaminaError
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.guard import may_read_storage
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Mark, Refusal, Session, Wait
from lamina.server.resp.store_house import LARGE, StoreHouse
from lamina.server.resp.store_past import Moment
from lamina.server.resp.store_words import SYNTAX, Range, changes, looked_at, number, scanned, storage, waited
from lamina.units import MIB

_OFF: Final = b"ERR the store is switched off (lamina serve --store)"
_MOST_BYTES: Final = 4 * MIB  # of keys and values in one answer of S.SCAN; one entry may be larger
_PER_WORD: Final = 32  # bytes that a word of S.WRITE takes beside its own, about
_MOST_INTEGER: Final = (1 << 63) - 1


def house_of(session: Session) -> StoreHouse:
    """Raises: Refusal where no store is served; what opening it does."""
    found: StoreHouse | None = session.house.store
    if found is None:
        raise Refusal(_OFF)
    return found.opened()


def write(session: Session, args: Args) -> bytes | Wait:
    """S.WRITE storage [PUT key value | DEL key | CLEAR | ADD | DROP | IN storage] ... [NOWAIT]: the epoch.

    One session: all of it or nothing. The answer goes out when it is durable; with NOWAIT when it was handed over.
    """
    house = house_of(session)
    size = _size(args)
    if size > LARGE and not session.is_in_exec:
        return _write_large(session, house, args, size)
    wanted, waits = changes(args)
    if session.is_in_exec:
        return _written(session, house, house.write_here([wanted], size), waits)
    epoch = house.write_now([wanted], size)
    if epoch is not None:
        return _written(session, house, epoch, waits)

    async def write() -> Callable[[], bytes]:
        later = await house.write(lambda: house.store.engine.write([wanted]), size)
        return lambda: _written(session, house, later, waits)

    return later(session, write)


def write_many(session: Session, commands: list[Args]) -> tuple[int, bytes, list[Mark]] | None:
    """The first of these S.WRITEs, as far as it goes at once: how many, the answer to each, and what it rests on.

    None: none of them can be done so. Each tells why when it is run by itself.
    """
    house: StoreHouse | None = session.house.store
    if house is None or house.opened_store is None:
        return None
    sessions: list[list[Change]] = []
    size, all_wait = 0, None
    try:
        for args in commands:
            of_this = _size(args)
            if of_this > LARGE:
                break
            wanted, waits = changes(args)
            if all_wait is not None and waits is not all_wait:
                break
            all_wait = waits
            size += of_this
            sessions.append(wanted)
    except Refusal:
        pass  # those before it are fine
    try:
        epoch = house.write_now(sessions, size) if sessions else None
    except LaminaError:
        return None
    if epoch is None:
        return None
    session.seen[ref(house.durable)] = max(epoch, session.seen.get(ref(house.durable), 0))
    return len(sessions), _epoch(epoch), [(house.durable, epoch)] if all_wait else []


def _size(args: Args) -> int:
    """Bytes of a session in memory, about."""
    return _PER_WORD * len(args) + sum(map(len, args))


def _write_large(session: Session, house: StoreHouse, args: Args, size: int) -> Wait:
    """All of it in a thread: also looking at the words takes long."""
    found: list[bool] = []

    def make() -> int:
        wanted, waits = changes(args)
        found.append(waits)
        return house.write_large(wanted)

    async def write() -> Callable[[], bytes]:
        epoch = await house.write(make, size, is_large=True)
        return lambda: _written(session, house, epoch, found[0])

    return later(session, write)


def _written(session: Session, house: StoreHouse, epoch: int, waits: bool) -> bytes:
    if waits:
        session.rest_on(house.durable, epoch)
    else:  # WAITAOF waits for it all the same, and so do reads of this client
        session.seen[ref(house.durable)] = max(epoch, session.seen.get(ref(house.durable), 0))
    return _epoch(epoch)


def get(session: Session, args: Args) -> bytes | Wait:
    """S.GET storage key [ASOF moment] [FULL]: the value, or nil; with FULL ``[value, major, minor, nanoseconds]``."""
    house = house_of(session)
    where, key = storage(args[1]), args[2]
    moment, is_full = looked_at(args, 3) if len(args) > 3 else (None, False)
    if moment is not None:
        return _of_the_past(session, house, moment, lambda view: _value(session, view.entry(where, key), is_full))
    if session.is_in_exec or not house.owed(session):
        is_known, found = house.store.known(where, key)
        if is_known:
            return _value(session, found, is_full)
        if session.is_in_exec:
            loops.must_wait()
            return _value(session, house.store.entry(where, key), is_full)

    async def find() -> bytes:
        return _value(session, await house.entry(session, where, key), is_full)

    return later(session, find)


def scan(session: Session, args: Args) -> bytes | Wait:
    """S.SCAN storage [FROM key] [TO key] [COUNT n] [ASOF moment] [FULL]: ``[next, [key, value, key, value, ...]]``.

    ``next`` is the key to go on FROM, nil when there is no more. With FULL each value is followed by its version, two
    numbers, and its time.
    """
    house = house_of(session)
    wanted = scanned(args)
    if wanted.moment is not None:
        return _of_the_past(session, house, wanted.moment, lambda view: _page(session, view, wanted))
    not_in_exec(session, b"S.SCAN")

    async def find() -> bytes:
        return await house.read(session, lambda: _page(session, house.store.snapshot(), wanted))

    return later(session, find)


def epoch(session: Session, args: Args) -> bytes:
    """S.EPOCH: which epoch is the present one, and which was the last to become durable or to be compacted."""
    store = house_of(session).store
    catalog = store.engine.catalog
    pairs: list[tuple[Value, Value]] = [
        (b"current", in_64_bits(store.epoch)),
        (b"durable", in_64_bits(store.last_epoch)),
        (b"compacted", in_64_bits(catalog.epoch)),
        (b"generation", catalog.generation),
    ]
    return replies.encode(Map(pairs), session.version)


def rotate(session: Session, args: Args) -> bytes | Wait:
    """S.ROTATE [BLOCK milliseconds]: ``[epoch, [file, ...], [file, ...]]``: the boundary, all rotated files, and those
    that are new. Nil if the time was up before; they are rotated all the same."""
    house = house_of(session)
    seconds = waited(args, 1)
    not_in_exec(session, b"S.ROTATE")

    async def rotate() -> bytes:
        done = await rotated(house.store.engine)
        names: list[Value] = [[name.encode() for name in each] for each in (done.files, done.new)]
        return replies.encode([in_64_bits(done.epoch), *names], session.version)

    return later(session, rotate, seconds)


def compact(session: Session, args: Args) -> bytes | Wait:
    """S.COMPACT [STOP | CLEAN [KEEP epoch]]: what it did, as a map.

    CLEAN also removes the files that are obsolete then; with KEEP those stay that reads as of that epoch need.
    STOP gives up the one that is going on: 1, or 0 if there is none.
    """
    house = house_of(session)
    if len(args) == 2 and args[1].lower() == b"stop":
        return b":%d\r\n" % house.store.cancel_compaction()
    cleans, keep = _cleaning(args)
    not_in_exec(session, b"S.COMPACT")
    store = house.store

    def work() -> list[tuple[Value, Value]]:
        facts: dict[str, Any] = asdict(store.compact())
        if cleans:
            done = store.clean_up(keep)
            facts |= {"removed": tuple(done.removed), "removed_bytes": done.bytes}
        return [(name.replace("_", "-").encode(), _fact(value)) for name, value in facts.items()]

    async def compact() -> bytes:
        done = await house.compact(work)
        if cleans:
            house.past.forget()  # or files that were removed would take up room yet; pins are gone soon enough
        return replies.encode(Map(done), session.version)

    return later(session, compact)


def storages(session: Session, args: Args) -> bytes | Wait:
    """S.STORAGES [ASOF moment] [FULL]: ``[storage, entries]`` of each that the user may read; with FULL also whether it
    was added, 1 or 0."""
    house = house_of(session)
    moment, is_full = looked_at(args, 1)

    def shown(found: list[StorageInfo]) -> bytes:
        facts: list[Value] = [
            [b"%d" % each.storage, each.entries, *([int(each.is_added)] if is_full else [])]
            for each in found
            if may_read_storage(session, each.storage)
        ]
        return replies.encode(facts, session.version)

    if moment is not None:
        return _of_the_past(session, house, moment, lambda view: shown(storages_of(view)))
    not_in_exec(session, b"S.STORAGES")

    async def count() -> bytes:
        return shown(await house.read(session, house.store.storages))

    return later(session, count)


# -- what they have in common -----------------------------------------------------------------------------------------


def _cleaning(args: Args) -> tuple[bool, int | None]:
    """CLEAN, and which epoch KEEP names. Raises: Refusal."""
    if len(args) == 1:
        return False, None
    if args[1].lower() != b"clean" or len(args) not in (2, 4):
        raise Refusal(SYNTAX)
    if len(args) == 2:
        return True, None
    if args[2].lower() != b"keep":
        raise Refusal(SYNTAX)
    return True, number(args[3])


def _of_the_past(session: Session, house: StoreHouse, moment: Moment, work: Callable[[Snapshot], bytes]) -> Wait:
    not_in_exec(session, b"ASOF")

    async def find() -> bytes:
        await house.sees_its_own(session)  # its own epoch may be the one it asks for
        return await house.past.read(moment, work)

    return later(session, find)


def not_in_exec(session: Session, what: bytes) -> None:
    if session.is_in_exec:
        raise Refusal(b"ERR %b is not allowed inside a transaction" % what)


def later(
    session: Session,
    work: Callable[[], Awaitable[bytes | Callable[[], bytes]]],
    seconds: float | None = None,
    *,
    must_finish: bool = True,
) -> Wait:
    """The answer is what ``work`` gives, or a call of that when it is the answer's turn; nil if that takes longer.

    A client that says no more is answered all the same; one that is gone is not waited for.
    """
    done: list[bytes | Callable[[], bytes] | LaminaError | Refusal] = []

    async def happens() -> None:
        try:
            done.append(await work())
        except (LaminaError, Refusal) as problem:
            done.append(problem)

    def attempt() -> bytes | None:
        if not done:
            return None
        answer = done[0]
        if isinstance(answer, LaminaError | Refusal):
            raise answer.with_traceback(None)
        return answer() if callable(answer) else answer

    return Wait((), seconds, attempt, replies.null(session.version), happens, must_finish=must_finish)


def _page(session: Session, view: Snapshot, wanted: Range) -> bytes:
    """In a thread."""
    entries: Iterator[Found] = view.scan(wanted.storage, wanted.start, wanted.end)
    found: list[Value] = []
    size = 0
    following: bytes | None = None
    for count, entry in enumerate(entries):
        if count >= wanted.most or (count and size + len(entry.key) + len(entry.value) > _MOST_BYTES):
            following = entry.key
            break
        found += (entry.key, entry.value)
        if wanted.is_full:
            found += _stamp(entry)
        size += len(entry.key) + len(entry.value)
    return replies.encode([following, found], session.version)


def _value(session: Session, found: Found | None, is_full: bool) -> bytes:
    if found is None:
        return replies.null(session.version)
    return replies.encode([found.value, *_stamp(found)], session.version) if is_full else replies.bulk(found.value)


def _stamp(found: Found) -> tuple[int | bytes, int | bytes, int | bytes]:
    """Its version, and when it was written."""
    return in_64_bits(found.version[0]), in_64_bits(found.version[1]), in_64_bits(found.time_ns)


def _epoch(epoch: int) -> bytes:
    return replies.integer(epoch) if epoch <= _MOST_INTEGER else replies.bulk(b"%d" % epoch)


def in_64_bits(number: int) -> int | bytes:
    """Clients take integers of 63 bits and a sign; what is larger is text."""
    return number if number <= _MOST_INTEGER else b"%d" % number


def _fact(value: Any) -> Value:
    if isinstance(value, tuple):
        return [name.encode() for name in value]
    return value if isinstance(value, float) else in_64_bits(int(value))


COMMANDS: dict[bytes, Handler] = {
    b"s.write": write,
    b"s.get": get,
    b"s.scan": scan,
    b"s.epoch": epoch,
    b"s.rotate": rotate,
    b"s.compact": compact,
    b"s.storages": storages,
}
