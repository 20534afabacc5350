"""Queues for coroutines: the same as for threads, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

import lamina
from lamina.data import Data
from lamina.engines.queues.aio import AsyncQueue
from lamina.engines.queues.api import HeldQueue
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.views import NewQueue
from lamina.errors import DiskFull, LaminaError, LogClosed, NoMessage, QueueRefused, QuotaMet
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture(params=["memory", "journal"])
def options(request: pytest.FixtureRequest) -> QueueOptions:
    return QueueOptions(store=request.param, quota=3, max_file_messages=4)


@pytest.fixture
def data(files: FaultyFiles, options: QueueOptions) -> Iterator[Data]:
    data = lamina.open("data", files=files, queues=options)
    yield data
    files.heal()
    data.close()


@pytest.fixture
def new(data: Data) -> NewQueue:
    return data.queues.create(key="mine")


@pytest.fixture
def out(data: Data, new: NewQueue) -> AsyncQueue:
    return data.queues.aio.queue(new.sid)


@pytest.fixture
def plain(data: Data, new: NewQueue) -> HeldQueue:
    return data.queue(new.rid, key="mine")


@pytest.fixture
def box(plain: HeldQueue) -> AsyncQueue:
    return plain.aio


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(6 * SOON):
            await story()

    asyncio.run(limited())


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not is_so():
            await asyncio.sleep(0.002)


async def drain(box: AsyncQueue) -> list[bytes | None]:
    async with box.subscribe(timeout=0) as messages:
        return [message.body async for message in messages]


@contextmanager
def held_by_another_thread(data: Data) -> Iterator[None]:
    """The engine's lock, as while a dump begins."""
    has_it, lets_go = threading.Event(), threading.Event()

    def hold() -> None:
        with data.queues.engine.lock:
            has_it.set()
            lets_go.wait(SOON)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_it.wait(SOON)
    try:
        yield
    finally:
        lets_go.set()
        thread.join()


def test_what_is_sent_is_received(box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        assert await box.receive() is None
        first, second = await out.send(b"1", flags=b"f"), await out.send(b"2")
        message = await box.receive()
        assert message is not None
        assert (message.id, message.body, message.flags) == (first, b"1", b"f")
        following = await box.ack(message)
        assert following is not None
        assert following.id == second
        with pytest.raises(NoMessage):
            await box.ack(message)
        assert await box.ack(following) is None

    run(story)


def test_queues_are_made_and_looked_after(data: Data) -> None:
    async def story() -> None:
        queues = data.queues.aio
        rid, sid = await queues.create(key="r", ttl=60)
        box, out = queues.queue(rid, "r"), queues.queue(sid)
        await out.send(b"1")
        await box.secure("s")
        with pytest.raises(QueueRefused):
            await out.send(b"2")
        out = queues.queue(sid, key="s")
        await out.send(b"3")
        info = await box.info()
        assert (info.size, info.is_secured, info.ttl_s) == (2, True, 60)
        assert await queues.sizes() == {info.handle: 2}
        assert await queues.dump() is not None
        await box.suspend()
        with pytest.raises(QueueRefused):
            await out.send(b"4")
        assert await drain(box) == [b"1", b"3"]
        await box.delete()
        for call in (box.receive, box.info, box.delete):
            with pytest.raises(QueueRefused):
                await call()
        assert (await queues.stats()).queues == 0

    run(story)


def test_the_quota_is_told_and_its_mark_received(box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        for body in (b"1", b"2", b"3"):
            await out.send(body)
        for _ in range(2):
            with pytest.raises(QuotaMet):
                await out.send(b"4")
        assert await drain(box) == [b"1", b"2", b"3", None]
        await out.send(b"5")
        assert await drain(box) == [b"5"]

    run(story)


def test_who_receives_waits_while_the_loop_goes_on(data: Data, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        assert await box.receive(timeout=0.01) is None
        waiting = asyncio.ensure_future(box.receive(timeout=None))
        await until(lambda: len(data.queues.sleepers))
        await out.send(b"late")
        message = await waiting
        assert message is not None
        assert message.body == b"late"
        assert len(data.queues.sleepers) == 0

    run(story)


def test_a_thread_wakes_a_coroutine(data: Data, box: AsyncQueue, new: NewQueue) -> None:
    async def story() -> None:
        waiting = asyncio.ensure_future(box.receive(timeout=None))
        await until(lambda: len(data.queues.sleepers))
        await asyncio.to_thread(data.queue(new.sid).send, b"from a thread")
        message = await waiting
        assert message is not None
        assert message.body == b"from a thread"

    run(story)


def test_a_lock_that_another_has_does_not_stop_the_loop(data: Data, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        async with box.subscribe() as messages:
            with held_by_another_thread(data):
                calls = [out.send(b"1"), box.receive(timeout=SOON), anext(messages), data.queues.aio.create()]
                waiting = [asyncio.ensure_future(call) for call in calls]
                for _ in range(20):
                    await asyncio.sleep(0)  # the loop turns
                assert not any(call.done() for call in waiting)
            _, received, delivered, _ = await asyncio.gather(*waiting)
            assert received == delivered

    run(story)


def test_a_slow_disk_does_not_stop_the_loop(data: Data, files: FaultyFiles, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        is_syncing, goes_on = threading.Event(), threading.Event()

        def before(operation: str, path: str) -> None:
            if operation == "sync":
                is_syncing.set()
                goes_on.wait(SOON)

        files.before = before
        sending = asyncio.ensure_future(out.send(b"1"))
        await until(is_syncing.is_set)
        receiving = asyncio.ensure_future(box.receive())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not sending.done()
        assert not receiving.done()  # what is not safe is given to nobody
        goes_on.set()
        id, message = await asyncio.gather(sending, receiving)
        assert message is not None
        assert message.id == id

    run(story)


# -- subscribing -----------------------------------------------------------------------------------------------------


def test_a_subscription_gives_messages_as_they_come(data: Data, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        got: list[bytes | None] = []
        subscription = box.subscribe()

        async def collect() -> None:
            async for message in subscription:
                got.append(message.body)

        collecting = asyncio.ensure_future(collect())
        for number in range(5):
            await until(lambda: len(data.queues.sleepers))
            await out.send(b"%d" % number)
            await until(lambda number=number: len(got) > number)  # type: ignore[misc]
        await subscription.close()
        await collecting
        assert got == [b"0", b"1", b"2", b"3", b"4"]
        assert subscription.ended is None
        assert (await box.info()).size <= 1  # the last one may have been in hand

    run(story)


def test_what_an_exception_left_comes_again(box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        await out.send(b"1")
        await out.send(b"2")
        with pytest.raises(ZeroDivisionError):
            async with box.subscribe(timeout=0) as messages:
                async for _ in messages:
                    raise ZeroDivisionError
        async with box.subscribe(timeout=0) as messages:
            async for message in messages:
                assert message.body == b"1"
                break
            assert [message.body async for message in messages] == [b"1", b"2"]

    run(story)


def test_a_message_is_acknowledged_before_the_next_is_asked_for(box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        await out.send(b"1")
        await out.send(b"2")
        async with box.subscribe(timeout=0) as messages:
            message = await anext(messages)
            await messages.ack(message)
            with pytest.raises(NoMessage):
                await messages.ack(message)
        assert await drain(box) == [b"2"]

    run(story)


def test_a_newer_subscription_takes_over(data: Data, plain: HeldQueue, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        former = box.subscribe()
        waiting = asyncio.ensure_future(anext(former, None))
        await until(lambda: len(data.queues.sleepers))
        newer = await asyncio.to_thread(plain.subscribe, timeout=0)  # a thread's
        assert await waiting is None
        assert former.ended == "taken over"
        await out.send(b"1")
        message = await asyncio.to_thread(next, newer)
        async with box.subscribe(timeout=0) as newest:
            assert newer.ended == "taken over"
            assert await anext(newest) == message
            with pytest.raises(NoMessage):
                await asyncio.to_thread(newer.ack, message)

    run(story)


def test_who_subscribes_to_a_queue_that_is_deleted_is_told(data: Data, box: AsyncQueue) -> None:
    async def story() -> None:
        subscription = box.subscribe()
        waiting = asyncio.ensure_future(anext(subscription, None))
        await until(lambda: len(data.queues.sleepers))
        await box.delete()
        assert await waiting is None
        assert subscription.ended == "deleted"
        with pytest.raises(QueueRefused):
            await anext(box.subscribe())

    run(story)


def test_cancelling_loses_no_message(data: Data, box: AsyncQueue, out: AsyncQueue) -> None:
    async def story() -> None:
        sent = [await out.send(b"%d" % number) for number in range(3)]
        async with box.subscribe(timeout=0) as messages:
            got = []
            for _ in range(3):
                with held_by_another_thread(data):  # a thread has to wait for it, so it is cancelled under way
                    step = asyncio.ensure_future(anext(messages))
                    await asyncio.sleep(0)
                    step.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await step
                got.append((await anext(messages)).id)
            assert got == sent
            assert await anext(messages, None) is None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.receive(timeout=None), 0.01)
        assert len(data.queues.sleepers) == 0

    run(story)


def test_who_is_cancelled_while_sitting_down_keeps_no_seat(data: Data, plain: HeldQueue, box: AsyncQueue) -> None:
    async def story() -> None:
        with held_by_another_thread(data):
            step = asyncio.ensure_future(anext(box.subscribe()))
            await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
        await asyncio.get_running_loop().shutdown_default_executor()  # its threads are through
        assert not plain.info().has_subscriber

    run(story)


# -- closing, and a disk that refuses --------------------------------------------------------------------------------


def test_closing_the_folder_wakes_who_waits(files: FaultyFiles, options: QueueOptions) -> None:
    async def story() -> None:
        data = lamina.open("data", files=files, queues=options)
        rid, sid = await data.queues.aio.create()
        box, out, queues = data.queue(rid).aio, data.queue(sid).aio, data.queues
        calls = box.receive(timeout=None), anext(box.subscribe())
        waiting = [asyncio.ensure_future(call) for call in calls]
        await until(lambda: sum(map(len, queues.sleepers._by_queue.values())) == 2)
        await asyncio.to_thread(data.close)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [LogClosed, LogClosed]
        for call in (out.send(b""), box.receive(), queues.aio.create()):
            with pytest.raises(LogClosed):
                await call

    run(story)


def test_what_the_disk_refuses_is_told_and_not_kept(
    data: Data, files: FaultyFiles, box: AsyncQueue, out: AsyncQueue
) -> None:
    async def story() -> None:
        await out.send(b"1")
        message = await box.receive()
        assert message is not None
        async with box.subscribe(timeout=0) as messages:
            delivered = await anext(messages)
            files.fail("append", error=errno.ENOSPC, times=10**9)
            for call in (out.send(b"2"), box.ack(message), data.queues.aio.create(), messages.ack(delivered)):
                with pytest.raises(DiskFull):
                    await call
            with pytest.raises(DiskFull):
                await anext(messages)  # acknowledges, too
            files.heal()
            assert [again async for again in messages] == [delivered]
        assert (await box.info()).size == 0
        assert data.queues.count == 1

    run(story)


def test_who_waits_is_not_given_what_the_disk_then_refuses(
    data: Data, files: FaultyFiles, box: AsyncQueue, out: AsyncQueue
) -> None:
    async def story() -> None:
        is_writing, goes_on = threading.Event(), threading.Event()

        def before(operation: str, path: str) -> None:
            if operation == "append" and not is_writing.is_set():
                is_writing.set()
                goes_on.wait(SOON)

        files.before = before
        files.fail("append", error=errno.ENOSPC, times=10**9)
        receiving = asyncio.ensure_future(box.receive(timeout=0.05))
        await until(lambda: len(data.queues.sleepers))
        sending = asyncio.ensure_future(out.send(b"never"))
        await until(is_writing.is_set)
        for _ in range(20):
            await asyncio.sleep(0)  # it looks meanwhile
        goes_on.set()
        with pytest.raises(LaminaError):
            await sending
        assert await receiving is None
        files.heal()

    run(story)
