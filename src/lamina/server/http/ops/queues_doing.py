"""Looking after queues over HTTP: letting old messages go, moving some, and ending queues that nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final, TypeVar

import msgspec

from lamina.engines.queues import ids, tending_served
from lamina.engines.queues.message import Queue
from lamina.engines.queues.tending import Moved
from lamina.errors import NotReady, NotThere, QueueRefused
from lamina.server.http.operations import Changes, Done, Place, Plan
from lamina.server.http.ops.queues_looking import Handle, handles_of, queues_of
from lamina.units import parse_duration

T = TypeVar("T")

_ALL: Final = 1 << 62  # a time before which everything was sent
_FOR_GOOD: Final = "What goes is gone for good."


class PurgeAsks(Changes, frozen=True, kw_only=True):
    """Which messages go."""

    handle: Handle
    older_than: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    """Such as ``7d``, ``12h`` or ``30`` (seconds): what was sent longer ago goes; ``0``: all that waits."""


class MoveAsks(Changes, frozen=True, kw_only=True):
    """Which messages go where."""

    handle: Handle
    to: Handle
    """The queue that gets them."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100
    """So many from the head, at most; and no more than the other has room for."""


class EndAsks(Changes, frozen=True, kw_only=True):
    """Which queue."""

    handle: Handle


class DumpAsks(Changes, frozen=True, kw_only=True):
    """Nothing more."""


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


async def _with_queue(place: Place, handle: str, work: Callable[[Queue], T]) -> T:
    """What ``work`` gives, in a thread. Raises: NotThere."""
    handles = handles_of(place)
    try:
        return await place.in_thread(lambda: work(handles.find(handle)))
    except QueueRefused:
        raise NotThere(f"queue {handle} was deleted meanwhile", hint="nothing more has to be done") from None


async def _tell(place: Place, rid: bytes, tell: Callable[[], None]) -> None:
    """Whoever has subscribed to a queue or waits for it, by the thread of the doors: they belong to it."""
    from lamina.server.resp.queue_commands import wait_key

    def told() -> None:
        tell()
        door = place.inside.resp
        if door is not None:
            door.house.changed(wait_key(rid))

    with suppress(NotReady):  # then nobody waits any more
        await place.on_loop(told)


# -- purge -------------------------------------------------------------------------------------------------------------


def _before_s(now_ns: int, older_than: str) -> int:
    """Raises: BadOption."""
    seconds = parse_duration(older_than)
    # Rounded down: when in its second a message was sent is not known, and what is younger stays.
    return int((now_ns - seconds * 1e9) // 1e9) if seconds else _ALL


def _which(older_than: str) -> str:
    return f"that wait for longer than {older_than.strip()}" if parse_duration(older_than) else "that wait"


async def plan_purge(place: Place, asked: PurgeAsks) -> Plan:
    engine = queues_of(place).engine
    before_s = _before_s(engine.clock.now_ns(), asked.older_than)
    count = await _with_queue(place, asked.handle, lambda queue: tending_served.old_ones(engine, queue, before_s))
    return Plan(
        will=f"drop {_messages(count)} of queue {asked.handle} {_which(asked.older_than)}",
        details=["From the head on, up to the first that is younger; the mark of the quota stays for the recipient."],
        warning=_FOR_GOOD if count else "",
        count=count,
    )


async def do_purge(place: Place, asked: PurgeAsks) -> Done:
    engine = queues_of(place).engine
    before_s = _before_s(engine.clock.now_ns(), asked.older_than)
    done = await _with_queue(place, asked.handle, lambda queue: tending_served.purge(engine, queue, before_s))
    return Done(
        did=f"dropped {_messages(done.messages)} of queue {asked.handle}, {done.left} left", count=done.messages
    )


# -- move --------------------------------------------------------------------------------------------------------------


async def plan_move(place: Place, asked: MoveAsks) -> Plan:
    deliveries, handles = queues_of(place), handles_of(place)
    engine = deliveries.engine

    def look(source: Queue) -> tuple[int, int, int, bool]:
        target = handles.find(asked.to)
        tending_served.check_two(source, target)
        room = tending_served.room_in(engine, target)
        count = tending_served.movable(engine, source, asked.limit)
        receiver = deliveries.subscribers.get(source.rid)
        return count, room, engine.quota, receiver is not None and receiver.given.get(source.rid) is not None

    count, room, quota, is_in_hand = await _with_queue(place, asked.handle, look)
    moves = min(count, room)
    details = [f"Queue {asked.to} has room for {room} more: its quota is {quota}."]
    if count > room:
        details.append(f"{count - room} of the {count} that were asked for stay where they are.")
    details.append(
        "They are safe there before they leave here: broken off between, some are in both until it is run again."
    )
    in_hand = "The recipient has the first one in hand: it may be handled twice." if is_in_hand and moves else ""
    return Plan(
        will=f"move {_messages(moves)} from the head of queue {asked.handle} to the end of queue {asked.to}",
        details=details,
        warning=in_hand,
        count=moves,
    )


async def do_move(place: Place, asked: MoveAsks) -> Done:
    deliveries, handles = queues_of(place), handles_of(place)
    engine = deliveries.engine
    target = await place.in_thread(handles.find, asked.to)
    came: list[None] = []

    def move(source: Queue) -> Moved:
        return tending_served.move(engine, source, target, asked.limit, came=lambda: came.append(None))

    def tell() -> None:
        found = engine.state.queues.get(target.rid)
        if found is not None:
            deliveries.was_sent(found)

    try:
        done = await _with_queue(place, asked.handle, move)
    finally:
        if came:  # some are there, however it went on
            await _tell(place, target.rid, tell)
    were_there = f", {done.were_there} of which were there already" if done.were_there else ""
    return Done(
        did=f"moved {_messages(done.messages)} from queue {asked.handle} to queue {asked.to}{were_there}",
        count=done.messages,
    )


# -- the queue itself --------------------------------------------------------------------------------------------------


async def plan_suspend(place: Place, asked: EndAsks) -> Plan:
    is_off = await _with_queue(place, asked.handle, lambda queue: bool(queue.is_off))
    if is_off:
        return Plan(will=f"change nothing: queue {asked.handle} is suspended already", count=0)
    return Plan(
        will=f"suspend queue {asked.handle}: it takes nothing more, what waits can still be received",
        warning="There is no way back.",
        count=1,
    )


async def do_suspend(place: Place, asked: EndAsks) -> Done:
    engine = queues_of(place).engine
    await _with_queue(place, asked.handle, lambda queue: engine.settle(engine.suspend(queue)))
    return Done(did=f"suspended queue {asked.handle}", count=1)


async def plan_delete(place: Place, asked: EndAsks) -> Plan:
    engine = queues_of(place).engine
    count = await _with_queue(place, asked.handle, lambda queue: tending_served.movable(engine, queue, None))
    subscriber = await _with_queue(place, asked.handle, lambda queue: queue.rid in queues_of(place).subscribers)
    return Plan(
        will=f"delete queue {asked.handle}, and with it {_messages(count)} that wait",
        details=["Its subscriber is told."] if subscriber else [],
        warning="The queue is gone for good: whoever has its ids can neither send nor receive any more.",
        count=count,
    )


async def do_delete(place: Place, asked: EndAsks) -> Done:
    deliveries = queues_of(place)
    engine = deliveries.engine

    def delete(queue: Queue) -> tuple[Queue, int]:
        position = engine.delete(queue)
        engine.settle(position)
        return queue, position

    queue, position = await _with_queue(place, asked.handle, delete)
    await _tell(place, queue.rid, lambda: deliveries.was_deleted(queue.rid))
    await place.in_thread(engine.remove_folder, queue, position)
    return Done(did=f"deleted queue {ids.handle(queue.rid)}", count=1)


# -- dump --------------------------------------------------------------------------------------------------------------


async def plan_dump(place: Place, asked: DumpAsks) -> Plan:
    engine = queues_of(place).engine
    return Plan(
        will=f"write a dump of all {len(engine.state.queues)} queues, so that the next start has less to read",
        details=["Clients go on meanwhile. Logs that the dump stands for go, unless somebody has yet to read them."],
        count=len(engine.state.queues),
    )


async def do_dump(place: Place, asked: DumpAsks) -> Done:
    queues_of(place)
    upkeep = place.is_there(place.inside.queues_upkeep)
    report = await place.in_thread(upkeep.dump)
    if report is None:
        return Done(did="nothing: a dump is being written already", count=0)
    return Done(
        did=f"wrote dump {report.number}: {report.queues} queues, {_messages(report.messages)}, {report.bytes} bytes, "
        f"in {report.seconds:.1f} s",
        count=report.queues,
    )
