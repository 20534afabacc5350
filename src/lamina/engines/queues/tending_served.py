"""What operators do to queues while a server serves them: let old messages go, and move some to another queue.

tending.py does the same to a folder that nobody uses. Here clients go on meanwhile: the lock of the engine is held for
a millisecond or two at a time, and never while the disk is waited for. So a message may be received by its recipient
while it is on its way to another queue; then it is in both hands, as after any crash between the two steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from lamina.engines.logged import check_room
from lamina.engines.queues import ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.looking import look_at_served
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.tending import Moved, Purged
from lamina.errors import BadOption, LaminaError, QueueRefused
from lamina.log.positions import Position
from lamina.log.sync import Level
from lamina.log.writer import Log

_HELD_S: Final = 0.0015  # that the lock is held at a time
_AT_ONCE: Final = 100  # messages that are on their way to another queue, and synced together
_SETTLE: Final = 1000  # changes that wait for the disk at most

_one_move = threading.Lock()  # two that move the same messages would not know of each other's


# -- letting go ------------------------------------------------------------------------------------------------------


def old_ones(engine: QueueEngine, queue: Queue, before_s: int) -> int:
    """How many messages ``purge`` would drop now. Raises: DiskError."""
    return sum(1 for _ in _old(look_at_served(engine).messages(queue), before_s))


def _old(messages: Iterable[Message], before_s: int) -> Iterable[Message]:
    for message in messages:
        if message.is_marker or message.ts >= before_s:
            return
        yield message


def purge(engine: QueueEngine, queue: Queue, before_s: int) -> Purged:
    """Drop messages that were sent before ``before_s`` (seconds since 1970), from the head on.

    It ends at the first that is not so old, and at the marker of the quota: that is for the recipient to see. Who holds
    a message that went goes on with it, and its acknowledgement brings the next one, as when a message expires.
    Durability: what is returned is as synced as the policy promises.
    Raises: QueueRefused if the queue was deleted; StorageError.
    """
    gone, settled, position, is_over = 0, 0, 0, False
    while not is_over:
        with engine.lock:
            queue = engine._current(queue)
            end = time.perf_counter() + _HELD_S
            while True:
                head = engine.messages.head(queue)
                is_over = head is None or head.is_marker or head.ts >= before_s
                if is_over:
                    break
                position = engine.messages.drop_head(queue)
                gone += 1
                if time.perf_counter() >= end or gone - settled == _SETTLE:
                    break
            left: int = engine.messages.size(queue)
        if gone - settled >= _SETTLE:
            engine.keeper.settle(position)
            settled = gone
    engine.keeper.settle(position)
    return Purged(ids.handle(queue.rid), gone, left)


# -- moving ----------------------------------------------------------------------------------------------------------


def check_two(source: Queue, target: Queue) -> None:
    """Raises: BadOption if they are one."""
    if source.rid == target.rid:
        raise BadOption("the two are the same queue", hint="give another one")


def movable(engine: QueueEngine, source: Queue, most: int | None) -> int:
    """How many messages wait, without the marker of the quota; ``most``: no more count. Raises: DiskError."""
    waiting = look_at_served(engine).view(source).waiting
    return waiting if most is None else min(waiting, most)


def room_in(engine: QueueEngine, target: Queue) -> int:
    """How many messages it takes. Raises: BadOption if it takes none, with the reason; StorageError."""
    with engine.lock:
        return _room(engine, engine._current(target))


def _room(engine: QueueEngine, target: Queue) -> int:
    handle = ids.handle(target.rid)
    if target.is_off:
        raise BadOption(f"queue {handle} is suspended: it takes no messages", hint="give another one")
    size = engine.messages.size(target)
    if engine.messages.is_closed(target) or size >= engine.quota:
        raise BadOption(
            f"queue {handle} has met its quota of {engine.quota}: it takes no messages until all were received",
            hint="give another one, or wait",
        )
    return int(engine.quota - size)


def move(
    engine: QueueEngine,
    source: Queue,
    target: Queue,
    most: int,
    *,
    came: Callable[[], None] = lambda: None,
    step: Callable[[str], None] = lambda name: None,
) -> Moved:
    """Put up to ``most`` messages of one queue at the end of another, in order, with the same ids, flags, times and
    lifetimes; fewer if the other has no room for more. The marker of the quota stays where it is.

    ``came`` is called whenever some are safe there, to tell who waits for them; ``step`` at "added" and "removed".
    Durability: messages are synced there, whatever the policy, before the first is taken away here. A crash in between
        leaves some in both: run it again, and each is in the other queue once.
    Raises: BadOption if the other queue takes none; QueueRefused if one was deleted; StorageError.
    """
    check_two(source, target)
    moved = were_there = 0
    with _one_move:
        while moved < most:
            first = [each for each in _waiting(engine, source, min(most - moved, _AT_ONCE)) if not each.is_marker]
            there = {message.id for message in _waiting(engine, target)}
            taken, position = _add(engine, target, first, there, is_begun=moved > 0)
            if not taken:
                break
            _sync(engine, position)
            came()
            step("added")
            _remove(engine, source, taken)
            step("removed")
            moved += len(taken)
            were_there += sum(message.id in there for message in taken)
            if len(taken) < len(first):
                break
    return Moved(ids.handle(source.rid), ids.handle(target.rid), moved, were_there)


def _found(engine: QueueEngine, queue: Queue) -> Queue:
    """Raises: QueueRefused."""
    found = engine.state.queues.get(queue.rid)
    if found is None:
        raise QueueRefused
    return found


def _waiting(engine: QueueEngine, queue: Queue, most: int | None = None) -> list[Message]:
    """What waits, or the first ``most``. In the store ``journal`` it is read without the lock, once it is as a crash
    did not leave it: only then is what can be read all there is."""
    with engine.lock:
        size = engine.messages.size(engine._current(queue))  # opens its folder, which heals it
    engine.keeper.push()
    found = look_at_served(engine).messages(_found(engine, queue), most)
    if len(found) < (size if most is None else min(size, most)) and engine.keeper is not engine:
        with engine.lock:
            found = engine.messages.messages(engine._current(queue))[:most]
    return found


def _add(
    engine: QueueEngine, target: Queue, messages: list[Message], there: set[bytes], *, is_begun: bool
) -> tuple[list[Message], int]:
    """Put those in that are not there. Returns the ones that are there now, up to the first that found no room."""
    taken: list[Message] = []
    position = 0
    with engine.lock:
        target = engine._current(target)
        room = 0
        if any(message.id not in there for message in messages):
            try:
                room = _room(engine, target)
            except BadOption:
                if not is_begun and messages[0].id not in there:
                    raise
            check_room(engine.reserve, sum(len(message.body or b"") for message in messages))
        for message in messages:
            if message.id not in there:
                if not room:
                    break
                position = engine.messages.put(target, message)
                room -= 1
            taken.append(message)
        if taken and not position:
            position = engine.position_of(target)
    return taken, position


def _remove(engine: QueueEngine, source: Queue, messages: list[Message]) -> None:
    """Take them away; one that is not the head any more was received meanwhile."""
    left = iter(messages)
    message, position = next(left, None), 0
    while message is not None:
        with engine.lock:
            source = engine._current(source)
            end = time.perf_counter() + _HELD_S
            while message is not None and time.perf_counter() < end:
                head = engine.messages.head(source)
                if head is not None and head.id == message.id:
                    position = engine.messages.drop_head(source)
                message = next(left, None)
    engine.keeper.settle(position)


def _sync(engine: QueueEngine, position: int) -> None:
    """Wait until what was done up to ``position`` survives a power cut, whatever the policy.

    Raises: the disk's error.
    """
    keeper = engine.keeper
    keeper.settle(position)
    if keeper is not engine:
        keeper.sync()
        keeper.has_synced(position)
    elif position and isinstance(engine.log, Log):
        try:
            engine.log.wait(Position(position), Level.SYNCED)
        except LaminaError as error:
            engine.undo_refused(error)
            raise
