"""Commands of queues for coroutines, without blocking their loop.

What needs no more than memory and a lock that is free is done at once; what needs a file, or a lock that another has,
in a thread. Waiting takes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.held import TRIES, Held, Seen
from lamina.errors import LaminaError, StorageError

T = TypeVar("T")
Done: TypeAlias = tuple[T, int]
"""What came of it, and the position of the change."""


async def step(engine: QueueEngine, work: Callable[[], T]) -> T:
    """Do ``work``, which takes the engine's lock: here if nobody has that and no file is needed, else in a thread."""
    is_short = engine.reserve is not None and engine.reserve.is_short
    needs_disk = engine.keeper is not engine or engine.journal.is_careful or is_short
    if not needs_disk and engine.lock.acquire(blocking=False):
        try:
            return work()
        finally:
            engine.lock.release()
    return await asyncio.to_thread(work)


async def settled(engine: QueueEngine, work: Callable[[], Done[T]]) -> T:
    """Do ``work``, and wait until its change is as safe as promised. Raises: the disk's error."""
    if engine.keeper is not engine:

        def all_of_it() -> T:
            value, position = work()
            engine.keeper.settle(position)
            return value

        return await asyncio.to_thread(all_of_it)
    value, position = await _pushed(engine, work)
    await _reached(engine, position)
    return value


async def seen(held: Held, look: Callable[[], Seen[T]]) -> T:
    """``held.see`` for coroutines."""
    engine = held.engine
    if engine.keeper is not engine:
        return await asyncio.to_thread(held.see, look)
    problem = StorageError("the disk refuses changes again and again", hint="try again when it takes them")
    for _ in range(TRIES):
        before = held.rebuilds
        found, changed, rests_on = await _pushed(engine, look)
        await _reached(engine, changed)
        try:
            await _reached(engine, rests_on)
        except StorageError as error:
            problem = error
            if held.rebuilds == before:
                break
        if held.rebuilds == before:
            return found
    raise problem


async def _pushed(engine: QueueEngine, work: Callable[[], T]) -> T:
    def both() -> T:
        done = work()
        engine.push()  # now that we have the lock
        return done

    return await step(engine, both)


async def _reached(engine: QueueEngine, position: int) -> None:
    """``engine.settled``, without its lock."""
    try:
        if position:
            await engine.reached(position)
    except LaminaError as error:
        await asyncio.to_thread(engine.undo_refused, error)
        raise


async def wait(told: asyncio.Event, seconds: float | None) -> bool:
    """False when the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds is None else max(seconds, 0)):
            await told.wait()
    return told.is_set()


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event from any thread; a loop that was closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
