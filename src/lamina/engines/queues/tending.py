"""What operators do to queues while no server runs: let old messages go, and move messages to another queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from secrets import token_bytes

from lamina.clock import Clock
from lamina.engines.queues import ids, migration_mark
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.looking import Looked, found_in, layouts_of
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.errors import BadOption
from lamina.log.files import Files
from lamina.log.files.real import RealFiles

_AT_ONCE = 1000  # changes that are pushed together


def open_to_tend(
    folder: str,
    *,
    quota: int = QueueOptions().quota,
    files: Files | None = None,
    clock: Clock | None = None,
    random: Callable[[int], bytes] = token_bytes,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    threaded: bool = True,
) -> QueueEngine:
    """The queues of a folder, in the store that they are in, and with the server's ttl unknown: nothing goes by that.

    Raises: LogLocked while a server runs; BadOption where there are no queues; Corruption, WrongFormat; DiskError.
    """
    disk = files or RealFiles()
    found_in(disk, folder)
    migration_mark.refuse_if_under_way(disk, folder)
    layouts = layouts_of(disk, folder)
    usual = QueueOptions()
    parts, chars = layouts[0] if layouts else (usual.path_parts, usual.part_chars)
    options = QueueOptions(
        store="journal" if layouts else "memory",
        quota=quota,
        ttl_s=0,
        max_file_messages=max(usual.max_file_messages, quota + 1),
        path_parts=parts,
        part_chars=chars,
    )
    return open_engine(
        folder,
        options=options,
        files=disk,
        clock=clock,
        random=random,
        force=force,
        progress=progress,
        threaded=threaded,
    )


# -- letting go ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Purged:
    """What went, or would."""

    handle: str
    messages: int
    left: int
    """That wait on, the marker of the quota included."""


def purge(engine: QueueEngine, queues: Iterable[Queue], before_s: int) -> list[Purged]:
    """Drop messages that were sent before ``before_s`` (seconds since 1970), from the head of each queue on.

    It ends at the first that is not so old, and at the marker of the quota: that is for the recipient to see. Returns
    the queues that lost some.
    Durability: what is returned is as synced as the policy of the log promises. Raises: StorageError.
    """
    purged = []
    for queue in queues:
        with engine.lock:
            old = _old(engine.messages.messages(queue), before_s)
            if old:
                _drop(engine, queue, old)
                purged.append(Purged(ids.handle(queue.rid), old, engine.messages.size(queue)))
    return purged


def would_purge(looked: Looked, queues: Iterable[Queue], before_s: int) -> list[Purged]:
    """The same without doing it, also beside a running server. Raises: DiskError."""
    purged = []
    for queue in queues:
        messages = looked.messages(queue)
        old = _old(messages, before_s)
        if old:
            purged.append(Purged(ids.handle(queue.rid), old, len(messages) - old))
    return purged


def _old(messages: list[Message], before_s: int) -> int:
    count = 0
    for message in messages:
        if message.is_marker or message.ts >= before_s:
            break
        count += 1
    return count


def _drop(engine: QueueEngine, queue: Queue, count: int) -> None:
    position = 0
    for number in range(count):
        position = engine.messages.drop_head(queue)
        if number % _AT_ONCE == _AT_ONCE - 1:
            engine.keeper.settle(position)
    engine.keeper.settle(position)


# -- moving ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    from_handle: str
    to_handle: str
    messages: int
    were_there: int
    """Of these: were in the other queue already, by a move that was broken off."""


def move(
    engine: QueueEngine, source: Queue, target: Queue, *, step: Callable[[str], None] = lambda name: None
) -> Moved:
    """Put all messages of one queue at the end of another, in order, with the same ids, flags, times and lifetimes.

    They are safe there before the first is taken away here, so a crash in between leaves some in both: run it again,
    and each is in the other queue once. The marker of the quota stays where it is.
    ``step`` is called at "added" and "removed".
    Raises: BadOption if the other queue takes no messages, or not so many; StorageError.
    """
    if source is target:
        raise BadOption("the two are the same queue", hint="give another one")
    with engine.lock:
        waiting = [message for message in engine.messages.messages(source) if not message.is_marker]
        there = {message.id for message in engine.messages.messages(target)}
        missing = [message for message in waiting if message.id not in there]
        _check_takes(engine, target, len(missing))
        position = 0
        for message in missing:
            position = engine.messages.put(target, message)
        if missing:
            engine.keeper.settle(position)
        step("added")
        _drop(engine, source, len(waiting))
        step("removed")
    were_there = len(waiting) - len(missing)
    return Moved(ids.handle(source.rid), ids.handle(target.rid), len(waiting), were_there)


def _check_takes(engine: QueueEngine, target: Queue, count: int) -> None:
    handle = ids.handle(target.rid)
    if not count:
        return
    if target.is_off:
        raise BadOption(f"queue {handle} is off: it takes no messages", hint="give another one")
    if engine.messages.is_closed(target):
        raise BadOption(
            f"queue {handle} met its quota: it takes no messages until all of it was received", hint="give another one"
        )
    size = engine.messages.size(target)
    if size + count > engine.quota:
        raise BadOption(
            f"queue {handle} has {size} messages and would get {count} more: its quota is {engine.quota}",
            hint="if the server has another one (--queue quota=N), say so: --quota N",
        )
